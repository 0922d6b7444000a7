// Elements: made by `h` and `svg`, never from text, so that what people and agents write can't become markup.

/** @typedef {Node | string | number | null | undefined | false} Child */
/** @typedef {Child | Children[]} Children */
/** @typedef {Record<string, any>} Attributes */

const SVG = "http://www.w3.org/2000/svg";

/**
 * Make an HTML element: `h("a.quiet", {href: "#/now"}, "Now")`. A function `onclick` becomes a listener, an object
 * `style` is set property by property (the content security policy forbids style attributes), true an empty attribute;
 * null and false leave an attribute or a child out.
 * @param {string} spec the tag, with classes after dots
 * @param {Attributes | null} [attributes]
 * @param {...Children} children
 * @returns {any}
 */
export function h(spec, attributes, ...children) {
  return fill(document.createElement(tag(spec)), spec, attributes, children);
}

/**
 * Make an SVG element, as `h` does.
 * @param {string} spec
 * @param {Attributes | null} [attributes]
 * @param {...Children} children
 * @returns {any}
 */
export function svg(spec, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag(spec)), spec, attributes, children);
}

/**
 * Replace what is in an element. A live update must not disturb whoever reads: the focus goes to the element that
 * took the place of the one that had it, and what was opened or closed stays so.
 * @param {Element} element
 * @param {...Children} children
 */
export function replace(element, ...children) {
  const focused = document.activeElement;
  const holds = focused && focused !== element && element.contains(focused);
  const at = holds ? alike(element, focused).indexOf(focused) : 0;
  const open = new Map(
    [...element.querySelectorAll("details[id]")].map((one) => [one.id, /** @type {HTMLDetailsElement} */ (one).open]),
  );
  element.replaceChildren(...nodes(children));
  for (const one of element.querySelectorAll("details[id]"))
    /** @type {HTMLDetailsElement} */ (one).open = open.get(one.id) ?? /** @type {HTMLDetailsElement} */ (one).open;
  if (!holds || focused.isConnected) return;
  const heir = /** @type {HTMLElement | null} */ (alike(element, focused)[at] ?? document.getElementById("main"));
  heir?.focus({ preventScroll: true });
}

/** The elements in another that look like one: by what they lead to, or are called. @param {Element} root @param {Element} one */
function alike(root, one) {
  const name = nameOf(one);
  return [...root.querySelectorAll(one.tagName)].filter((other) => other.tagName === one.tagName && nameOf(other) === name);
}

/** @param {Element} one */
function nameOf(one) {
  return (
    one.id ||
    one.getAttribute("data-id") ||
    one.getAttribute("href") ||
    one.getAttribute("name") ||
    one.getAttribute("aria-label") ||
    (one.matches("button, summary") ? one.textContent : "")
  );
}

/** @param {string} spec */
function tag(spec) {
  return spec.split(".", 1)[0];
}

/**
 * @template {Element} E
 * @param {E} element
 * @param {string} spec
 * @param {Attributes | null | undefined} attributes
 * @param {Children[]} children
 * @returns {E}
 */
function fill(element, spec, attributes, children) {
  const classes = spec.split(".").slice(1);
  if (classes.length) element.setAttribute("class", classes.join(" "));
  for (const [name, value] of Object.entries(attributes ?? {})) set(element, name, value);
  element.append(...nodes(children));
  return element;
}

/**
 * @param {Element} element
 * @param {string} name
 * @param {any} value
 */
function set(element, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
  else if (name === "style")
    Object.entries(value).forEach(([key, one]) => /** @type {HTMLElement} */ (element).style.setProperty(key, String(one)));
  else if (name === "class" && element.classList.length) element.classList.add(...String(value).split(" ").filter(Boolean));
  else if (name === "value" || name === "checked") /** @type {any} */ (element)[name] = value;
  else element.setAttribute(name, value === true ? "" : String(value));
}

/**
 * @param {Children[]} children
 * @returns {(Node | string)[]}
 */
function nodes(children) {
  return /** @type {Child[]} */ (/** @type {any[]} */ (children).flat(Infinity))
    .filter((one) => one !== null && one !== undefined && one !== false && one !== "")
    .map((one) => (one instanceof Node ? one : String(one)));
}

// Workflows as drawn graphs: steps in layers, from left to right, lit by their states.
import { h, svg } from "./dom.js";
import { shape, stateOf } from "./marks.js";

const WIDTH = 168,
  HEIGHT = 40,
  GAP_X = 48,
  GAP_Y = 16;

/**
 * @param {{id: string, depends_on?: string[]}[]} steps
 * @param {(id: string) => {phase: string, text?: string, href?: string | null} | null} stateFor
 */
export function graph(steps, stateFor) {
  /** @type {Map<string, number>} */
  const layers = new Map();
  const byId = new Map(steps.map((one) => [one.id, one]));
  /** @param {string} id @returns {number} */
  const layer = (id) => {
    const known = layers.get(id);
    if (known !== undefined) return known;
    layers.set(id, 0); // a circle can't be declared, but must not hang the page either
    const found = Math.max(-1, ...(byId.get(id)?.depends_on ?? []).filter((one) => byId.has(one)).map(layer)) + 1;
    layers.set(id, found);
    return found;
  };
  /** @type {Map<string, {x: number, y: number}>} */
  const places = new Map();
  /** @type {number[]} */
  const filled = [];
  for (const { id } of steps) {
    const column = layer(id),
      row = (filled[column] = (filled[column] ?? 0) + 1) - 1;
    places.set(id, { x: column * (WIDTH + GAP_X) + 1, y: row * (HEIGHT + GAP_Y) + 1 });
  }
  const width = filled.length * (WIDTH + GAP_X) - GAP_X + 2,
    height = Math.max(1, ...filled) * (HEIGHT + GAP_Y) - GAP_Y + 2;
  const lines = steps.flatMap(({ id, depends_on = [] }) =>
    depends_on
      .filter((one) => places.has(one))
      .map((one) => {
        const from = /** @type {{x: number, y: number}} */ (places.get(one)),
          to = /** @type {{x: number, y: number}} */ (places.get(id));
        const x1 = from.x + WIDTH,
          y1 = from.y + HEIGHT / 2,
          y2 = to.y + HEIGHT / 2;
        return svg("path.link", {
          d: `M${x1} ${y1}C${x1 + GAP_X / 2} ${y1} ${to.x - GAP_X / 2} ${y2} ${to.x} ${y2}`,
          class: stateFor(one)?.phase === "completed" ? "passed" : "",
        });
      }),
  );
  const boxes = steps.map(({ id }) => {
    const { x, y } = /** @type {{x: number, y: number}} */ (places.get(id)),
      state = stateFor(id);
    const words = `${id}${state ? `: ${state.phase}${state.text ? `, ${state.text}` : ""}` : ""}`;
    const at = state ? stateOf(state.phase) : "";
    const drawn = svg(
      `g.step.is-${at}`,
      { role: "img", "aria-label": words },
      svg("title", null, words),
      svg("rect", { x, y, width: WIDTH, height: HEIGHT, rx: 7 }),
      state && shape(at, x + (at === "completed" || at === "running" ? 11 : 13), y + HEIGHT / 2),
      svg("text.name", { x: x + (state ? 26 : 12), y: y + (state?.text ? 17 : 24) }, cut(id, 20)),
      state?.text && svg("text", { x: x + 26, y: y + 31 }, cut(state.text, 22)),
    );
    return state?.href ? svg("a", { href: state.href }, drawn) : drawn;
  });
  return h(
    "div.axis-scroll.graph",
    { tabindex: "0", role: "group", "aria-label": "Steps and what they wait for" },
    svg("svg", { width, height }, lines, boxes),
  );
}

/** @param {string} text @param {number} most */
function cut(text, most) {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

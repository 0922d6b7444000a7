// What can be done with schedules and occurrences, from every view: the same question, words and command each time.
import { idempotencyKey, part, send } from "./api.js";
import { h } from "./dom.js";
import { ask, field, notify } from "./parts.js";

/** @param {any} schedule */
function nameOf(schedule) {
  return schedule.name ?? schedule.schedule_id;
}

/** @param {any} schedule @returns {Promise<any>} null if it was not done */
export async function pauseOrResume(schedule) {
  const path = `/schedules/${part(schedule.schedule_id)}`;
  const done =
    schedule.phase === "paused"
      ? await ask(
          `Resume ${nameOf(schedule)}?`,
          h("p", null, "It fires again from now on; what was due meanwhile follows its misfire policy."),
          {
            confirm: "Resume",
            command: `noonmark schedule resume ${schedule.schedule_id}`,
            act: () => send("POST", `${path}/resume`, {}),
          },
        )
      : await ask(
          `Pause ${nameOf(schedule)}?`,
          [
            h("p", null, "Nothing of it starts until it is resumed. What runs goes on."),
            field("Why", h("input", { name: "reason", maxlength: 500 }), "Others see it beside the schedule."),
          ],
          {
            confirm: "Pause",
            command: `noonmark schedule pause ${schedule.schedule_id}`,
            act: ({ reason }) => send("POST", `${path}/pause`, reason ? { reason } : {}),
          },
        );
  if (done) notify(schedule.phase === "paused" ? `${nameOf(schedule)} is active.` : `${nameOf(schedule)} is paused.`);
  return done;
}

/** @param {any} schedule */
export async function runNow(schedule) {
  const done = await ask(
    `Run ${nameOf(schedule)} now?`,
    h("p", null, "It runs once, beside its fires, which stay as they are."),
    {
      confirm: "Run now",
      command: `noonmark schedule run-now ${schedule.schedule_id}`,
      act: () => send("POST", `/schedules/${part(schedule.schedule_id)}/run`, { key: idempotencyKey() }),
    },
  );
  if (done) notify(`${nameOf(schedule)} was asked to run.`);
  return done;
}

/** @param {any} schedule */
export async function remove(schedule) {
  const done = await ask(
    `Delete ${nameOf(schedule)}?`,
    [
      h("p", null, "It never fires again. Its history stays."),
      h("label", null, h("input", { type: "checkbox", name: "stop_running" }), " Also stop what runs"),
    ],
    {
      confirm: "Delete",
      kind: "danger",
      command: `noonmark schedule delete ${schedule.schedule_id}`,
      act: async ({ stop_running }) =>
        (await send("DELETE", `/schedules/${part(schedule.schedule_id)}${stop_running ? "?stop_running=true" : ""}`)) || true,
    },
  );
  if (done) notify(`${nameOf(schedule)} is deleted.`);
  return done;
}

/** @param {any} occurrence */
export async function cancel(occurrence) {
  const done = await ask(
    `Cancel ${occurrence.schedule_name ?? occurrence.occurrence_id}?`,
    h("p", null, "The work is asked to stop, and the occurrence ends as cancelled."),
    {
      confirm: "Cancel the run",
      cancel: "Keep it",
      kind: "danger",
      command: `noonmark run cancel ${occurrence.occurrence_id}`,
      act: () => send("POST", `/occurrences/${part(occurrence.occurrence_id)}/cancel`, {}),
    },
  );
  if (done) notify("It was asked to stop.");
  return done;
}

/** @param {any} occurrence */
export async function redrive(occurrence) {
  const done = await ask(
    `Run ${occurrence.schedule_name ?? occurrence.occurrence_id} again?`,
    h("p", null, "The same work, for the same time, begins again."),
    {
      confirm: "Redrive",
      command: `noonmark run redrive ${occurrence.occurrence_id}`,
      act: () => send("POST", `/occurrences/${part(occurrence.occurrence_id)}/redrive`, {}),
    },
  );
  if (done) notify("It begins again.");
  return done;
}

// Alarms and other events: what happened when and why, as a list to open.

import { el, refill } from "/static/watch_dom.js";
import { HEALTH, RANK, bySeverity, capital, count, number, span, whole } from "/static/watch_words.js";

/** Put the events of one alarm together: it begins, may grow, and ends. What has no duration stands alone. */
export function episodes(events) {
  const open = new Map();
  const found = [];
  for (const event of events) {
    const going = open.get(event.name);
    if (event.ends) {
      if (going === undefined) continue;
      going.last = Math.max(going.first, event.values?.last ?? event.step - 1); // found, not noticed to be over
      going.told.push(event);
      open.delete(event.name);
    } else if (going !== undefined) {
      going.told.push(event);
      going.first = Math.min(going.first, event.began ?? event.step);
      if (RANK.indexOf(event.severity) >= RANK.indexOf(going.severity))
        Object.assign(going, { severity: event.severity, event });
    } else {
      const lasting = event.began !== null && event.began !== undefined;
      const first = event.began ?? event.step;
      const episode = {
        key: `${event.name} ${event.step}`,
        first,
        last: lasting ? null : event.step,
        lasting,
        severity: event.severity,
        event,
        told: [event],
      };
      found.push(episode);
      if (lasting) open.set(event.name, episode);
    }
  }
  return found;
}

export function titleOf(event) {
  return capital(event.title || event.name);
}

/** Alarms that go on come first, the severest and then the earliest of them; then what is over, the newest first. */
function byUrgency(one, other) {
  const over = (episode) => (episode.lasting && episode.last === null ? 0 : 1);
  if (over(one) !== over(other)) return over(one) - over(other);
  return over(one) === 1 ? other.first - one.first : bySeverity(one, other) || one.first - other.first;
}

/** The list of episodes; those that are open stay open when it is drawn again. */
export class EventList {
  constructor(show) {
    this.show = show; // shows an episode's steps in the charts
    this.summary = el("p", { class: "hint" });
    this.list = el("div", { class: "episodes" });
    this.element = el(
      "section",
      { class: "events", id: "events", "aria-labelledby": "events-title" },
      el("h3", { id: "events-title" }, "Events"),
      this.summary,
      this.list,
    );
  }

  draw(found) {
    const opened = new Set([...this.list.querySelectorAll("details[open]")].map((one) => one.dataset.key));
    const going = found.filter((one) => one.lasting && one.last === null).length;
    const still = going > 0 ? `, ${count(going, "alarm")} still going on` : "";
    this.summary.textContent =
      found.length === 0
        ? "None. No rule has found anything, and nothing else was recorded."
        : `${count(found.length, "event")}${still}. Open one for causes and advice.`;
    refill(
      this.list,
      found.toSorted(byUrgency).map((one) => this._entry(one, opened.has(one.key))),
    );
  }

  /** Open an episode and take the reader there. */
  open(key) {
    const entry = [...this.list.children].find((one) => one.dataset.key === key);
    if (entry === undefined) return;
    entry.open = true;
    entry.scrollIntoView({ block: "nearest" });
    entry.querySelector("summary").focus({ preventScroll: true });
  }

  _entry(episode, opened) {
    const { event, severity, first, last, told } = episode;
    const { mark, word } = HEALTH[severity];
    const values = Object.entries(event.values ?? {});
    return el(
      "details",
      { class: `episode ${severity}`, open: opened, "data-key": episode.key },
      el(
        "summary",
        { "data-focus": `event ${episode.key}` },
        el(
          "span",
          { class: `health ${severity}` },
          el("span", { class: "mark", "aria-hidden": "true" }, mark),
          el("span", { class: "spoken" }, `${word}: `),
        ),
        el("span", { class: "what" }, titleOf(event)),
        el("span", { class: "when" }, span(first, last)),
      ),
      told.map((one) =>
        el("p", { class: "message" }, el("span", { class: "hint" }, `step ${whole(one.step)} `), one.message),
      ),
      event.causes.length > 0
        ? [
            el("h4", {}, "Likely causes, the likeliest first"),
            el(
              "ol",
              {},
              event.causes.map((cause) =>
                el("li", {}, cause.text, cause.check ? el("span", { class: "check" }, cause.check) : null),
              ),
            ),
          ]
        : null,
      event.advice ? [el("h4", {}, "What to do"), el("p", {}, event.advice)] : null,
      values.length > 0
        ? el(
            "dl",
            { class: "values" },
            values.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, number(value)))),
          )
        : null,
      el(
        "p",
        { class: "foot" },
        el("code", {}, event.name),
        episode.lasting
          ? el(
              "button",
              { type: "button", class: "plain small", click: () => this.show(episode) },
              "Show in the charts",
            )
          : null,
      ),
    );
  }
}

// The lane above the charts: alarms and checkpoints on the charts' own axis of steps.

import { el, refill } from "/static/watch_dom.js";
import { titleOf } from "/static/watch_events.js";
import { HEALTH, bySeverity, count, span } from "/static/watch_words.js";

const ROW = 20; // pixels a row of the lane
const MOST_ROWS = 6;
const LEFT = 52; // where a chart's plot begins and ends within its width
const RIGHT = 12;

/** A bar an alarm, and a mark a checkpoint. */
export class EventLane {
  constructor(timeline, open) {
    this.timeline = timeline;
    this.open = open;
    this.found = [];
    this.checkpoints = [];
    this.bars = el("div", { class: "lane" });
    this.saved = el("div", { class: "lane saved", role: "img" });
    this.element = el(
      "figure",
      { class: "chart", id: "lane" },
      el(
        "figcaption",
        {},
        el("span", { class: "name" }, "Alarms and checkpoints"),
        el(
          "span",
          { class: "legend" },
          ["warning", "critical"].map((kind) =>
            el(
              "span",
              { class: `health ${kind}` },
              el("span", { class: "mark" }, HEALTH[kind].mark),
              HEALTH[kind].word.toLowerCase(),
            ),
          ),
          el("span", {}, el("i", { class: "save" }), "checkpoint"),
          el("span", {}, el("i", { class: "save suspect" }), "under an alarm"),
        ),
      ),
      this.bars,
      this.saved,
    );
    this.resizing = new ResizeObserver(() => this.redraw());
    this.resizing.observe(this.element);
    timeline.add(this);
  }

  get ends() {
    return null;
  }

  pointAt() {}

  recolour() {}

  close() {
    this.timeline.remove(this);
    this.resizing.disconnect();
  }

  feed(found, checkpoints) {
    this.found = found;
    this.checkpoints = checkpoints;
    this.element.hidden = found.length === 0 && checkpoints.length === 0;
  }

  redraw() {
    const [first, last] = this.timeline.range;
    const width = this.element.clientWidth - LEFT - RIGHT;
    if (width <= 0) return;
    const at = (step) => LEFT + ((step - first) / (last - first)) * width;
    const visible = this.found
      .filter((one) => one.first <= last && (one.last ?? last) >= first)
      .toSorted((a, b) => bySeverity(a, b) || a.first - b.first);
    const ends = [];
    const bars = [];
    for (const episode of visible) {
      const from = Math.max(LEFT, at(episode.first));
      const to = Math.max(from + 18, Math.min(LEFT + width, at(episode.last ?? last)));
      let row = ends.findIndex((taken) => taken.every(([low, high]) => to + 4 < low || from > high + 4));
      if (row < 0) row = ends.push([]) - 1;
      if (row >= MOST_ROWS) continue;
      ends[row].push([from, to]);
      bars.push(this._bar(episode, from, to - from, row));
    }
    this.bars.style.height = `${Math.min(ends.length, MOST_ROWS) * ROW}px`;
    refill(this.bars, bars);
    this._drawSaved(first, last, at);
  }

  _bar(episode, left, width, row) {
    const { mark, word } = HEALTH[episode.severity];
    const title = titleOf(episode.event);
    const bar = el(
      "button",
      {
        type: "button",
        class: `bar-of ${episode.severity}${episode.lasting && episode.last === null ? " going" : ""}`,
        "data-focus": `bar ${episode.key}`,
        title: `${word}: ${title}, ${span(episode.first, episode.last)}`,
        "aria-label": `${word}: ${title}, ${span(episode.first, episode.last)}. Open its causes.`,
        click: () => this.open(episode.key),
      },
      el("span", { class: "mark", "aria-hidden": "true" }, mark),
      width > 60 ? ` ${title}` : null,
    );
    bar.style.left = `${left}px`;
    bar.style.width = `${width}px`;
    bar.style.top = `${row * ROW}px`;
    return bar;
  }

  _drawSaved(first, last, at) {
    const visible = this.checkpoints.filter(({ step }) => step >= first && step <= last);
    const suspects = visible.filter((one) => one.suspicions.length > 0).length;
    this.saved.setAttribute(
      "aria-label",
      `${count(visible.length, "checkpoint")}, ${suspects} under an alarm. The table of checkpoints lists them.`,
    );
    refill(
      this.saved,
      visible.map((one) => checkpointMark(one, at(one.step))),
    );
  }
}

function checkpointMark({ step, exists, suspicions }, left) {
  const suspect = suspicions.length > 0;
  const under = suspect ? `, under ${suspicions.join(", ")}` : "";
  const mark = el("i", {
    class: ["save", suspect ? "suspect" : "", exists ? "" : "gone"].join(" "),
    title: `Checkpoint of step ${step}${exists ? "" : ", deleted"}${under}`,
  });
  mark.style.left = `${left}px`;
  return mark;
}

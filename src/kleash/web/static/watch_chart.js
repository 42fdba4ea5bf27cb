// One chart: its name and unit, a legend that reads the numbers under the cursor, the curves, and the same as a table.

import { sentence, table } from "/static/watch_alternatives.js";
import { el, refill } from "/static/watch_dom.js";
import { aligned, atOrBefore, stacked } from "/static/watch_data.js";
import { paintBand, paintBroken, paintTarget, paintWindows, tone } from "/static/watch_paint.js";
import { number, ticks, whole, withError } from "/static/watch_words.js";

const AXIS_WIDTH = 52;
const CROWDED = 700; // points from which on a line is drawn thin
const THIN = 0.8;
const DASHES = { solid: [], dashed: [5, 4], dots: [], dotted: [1, 3], mixed: [8, 3, 2, 3] };
const FONT = '11px Inter, "Segoe UI", system-ui, -apple-system, "Helvetica Neue", Arial, sans-serif';

export class Chart {
  /**
   * @param {object} about title, unit, meaning, lines ({key, label, tone, stroke}), target, zero, stacked, height.
   * @param {Timeline} timeline shared with the other charts.
   */
  constructor(about, timeline) {
    this.about = about;
    this.timeline = timeline;
    this.data = { steps: [], values: [], stderr: [] };
    this.target = null;
    this.plot = null;
    this.tabled = false;
    this._build();
    this.resizing = new ResizeObserver(() => this._resize());
    this.resizing.observe(this.area);
    timeline.add(this);
  }

  close() {
    this.timeline.remove(this);
    this.resizing.disconnect();
    this.plot?.destroy();
  }

  /** First and last step; null before there are numbers. */
  get ends() {
    const { steps } = this.data;
    return steps.length > 0 ? [steps[0], steps[steps.length - 1]] : null;
  }

  /** Take the numbers: `series(key)` returns {steps, values, stderr}. Draw them with `redraw`. */
  feed(series) {
    this.data = aligned(this.about.lines.map((line) => series(line.key, line)));
    this.target = this.about.target ? series(this.about.target) : null;
    if (this.target) this.targetKey.hidden = this.target.steps.length === 0;
    this.drawn = this.about.stacked ? stacked(this.data.values) : this.data.values;
    this.area.setAttribute("aria-label", sentence(this.about, this.data));
  }

  redraw() {
    if (this.data.steps.length === 0) return;
    if (this.plot === null) this._plot();
    const [min, max] = this.timeline.range;
    const crowded = this.data.steps.filter((step) => step >= min && step <= max).length > CROWDED;
    this.plot.series.forEach((series, at) => {
      if (at > 0) series.width = crowded ? THIN : this._width(this.about.lines[at - 1]);
    });
    this.plot.batch(() => {
      this.plot.setData([this.data.steps, ...this.drawn], false);
      this.plot.setScale("x", { min, max });
    });
    this.area.setAttribute("aria-valuemin", min);
    this.area.setAttribute("aria-valuemax", max);
    this.pointAt(this.timeline.step);
    if (this.tabled) refill(this.table, table(this.about, this.data, this.timeline.range));
  }

  /** Draw again in the colours of another theme. */
  recolour() {
    this.plot?.redraw(false, true);
  }

  /** Move the cursor to the number nearest to a step and read it; without a step, read the newest. */
  pointAt(step) {
    const { steps } = this.data;
    if (steps.length === 0) return;
    const row = step === null ? steps.length - 1 : nearest(steps, step);
    if (this.plot && !this.hovered) {
      const left = step === null ? -10 : this.plot.valToPos(steps[row], "x");
      this.plot.setCursor({ left, top: step === null ? -10 : 0 }, false);
    }
    this._read(row, step !== null);
  }

  // -------------------------------------------------------------- parts

  _build() {
    const { title, unit, meaning, lines } = this.about;
    this.readings = lines.map(() => el("b", { class: "reading" }));
    const legend = lines.map((line, at) =>
      el(
        "span",
        { class: `key ${line.stroke} tone-${line.tone}`, title: line.title ?? null },
        line.label,
        " ",
        this.readings[at],
      ),
    );
    if (this.about.target) {
      this.targetReading = el("b", { class: "reading" });
      this.targetKey = el("span", { class: "key target", hidden: true }, "target ± 25 % ", this.targetReading);
      legend.push(this.targetKey);
    }
    this.at = el("span", { class: "at" });
    this.toggle = el(
      "button",
      {
        type: "button",
        class: "plain small",
        "aria-pressed": "false",
        "aria-label": `Table of ${title}`,
        click: () => this._toggleTable(),
      },
      "Table",
    );
    this.area = el("div", {
      class: "plot",
      tabindex: "0",
      role: "slider",
      "aria-orientation": "horizontal",
      "data-focus": `chart ${title}`,
      "aria-valuemin": 0,
      "aria-valuemax": 0,
      "aria-valuenow": 0,
      "aria-label": `${title}. No numbers yet.`,
      keydown: (event) => this._key(event),
    });
    this.area.style.minHeight = `${this.about.height}px`;
    this.table = el("div", {
      class: "scroll numbers",
      tabindex: "0",
      role: "region",
      hidden: true,
      "aria-label": `${title}, as a table`,
    });
    this.element = el(
      "figure",
      { class: "chart" },
      el(
        "figcaption",
        {},
        el("span", { class: "name", title: meaning || null }, title),
        el("span", { class: "unit" }, unit || ""),
        el("span", { class: "legend" }, legend),
        this.at,
        this.toggle,
      ),
      this.area,
      this.table,
    );
  }

  _plot() {
    const { lines, height } = this.about;
    const axis = { stroke: () => tone("muted"), font: FONT, grid: { show: false }, ticks: { show: false } };
    this.plot = new window.uPlot(
      {
        width: Math.max(160, this.area.clientWidth),
        height,
        legend: { show: false },
        padding: [8, 12, 0, 0],
        cursor: {
          y: false,
          drag: { x: true, y: false, setScale: false },
          focus: { prox: -1 },
          points: { size: 7, width: 1.5, stroke: () => tone("paper"), fill: (_, at) => tone(lines[at - 1].tone) },
          bind: { dblclick: () => () => this.timeline.show(null) },
        },
        scales: {
          x: { time: false, range: (_, min, max) => [min, max] },
          y: { range: () => this._height() },
        },
        axes: [
          {
            ...axis,
            size: 24,
            gap: 4,
            space: 70,
            incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 1e6],
            values: (_, splits) => splits.map(whole),
            border: { show: true, stroke: () => tone("rule"), width: 1 },
          },
          {
            ...axis,
            size: AXIS_WIDTH,
            gap: 6,
            space: 28,
            grid: { show: true, stroke: () => tone("rule"), width: 1 },
            values: (_, splits) => ticks(splits),
          },
        ],
        series: [{}, ...lines.map((line) => this._line(line))],
        hooks: {
          drawAxes: [() => this._under()],
          draw: [() => paintBroken(this.plot, this.data.steps, this.data.values)],
          setCursor: [() => this._hover()],
          setSelect: [() => this._select()],
        },
      },
      [this.data.steps, ...this.drawn],
      this.area,
    );
    const over = this.plot.over;
    over.addEventListener("mouseenter", () => (this.hovered = true));
    over.addEventListener("mouseleave", () => {
      this.hovered = false;
      this.timeline.point(null);
    });
  }

  _line(line) {
    const dots = line.stroke === "dots";
    return {
      stroke: () => tone(line.tone, dots ? 0.55 : 1),
      width: this._width(line),
      dash: DASHES[line.stroke],
      spanGaps: false,
      points: {
        show: dots ? (_, __, first, last) => last - first < 400 : false,
        size: 6,
        width: 1,
        stroke: () => tone("paper"),
        fill: () => tone(line.tone),
      },
    };
  }

  _width(line) {
    return line.stroke === "dots" || this.about.stacked ? 1 : 1.75;
  }

  /** Paint what lies under the lines. */
  _under() {
    const { steps, stderr, values } = this.data;
    paintWindows(this.plot, this.timeline.windows);
    if (this.target) paintTarget(this.plot, this.target);
    this.about.lines.forEach((line, at) => {
      if (this.about.stacked) {
        const below = at === 0 ? steps.map(() => 0) : this.drawn[at - 1];
        paintBand(this.plot, steps, below, this.drawn[at], tone(line.tone, 0.45));
      } else if (stderr[at].some((error) => error)) {
        const low = values[at].map((value, row) => minus(value, stderr[at][row]));
        const high = values[at].map((value, row) => minus(value, -(stderr[at][row] ?? 0)));
        paintBand(this.plot, steps, low, high, tone(line.tone, 0.16));
      }
    });
  }

  /** The range of the vertical axis: what is shown, its errors, the target, and 0 where that belongs to the chart. */
  _height() {
    const [first, last] = this.timeline.range;
    let low = this.about.zero ? 0 : Infinity;
    let high = this.about.zero ? 0 : -Infinity;
    const take = (value) => {
      if (value < low) low = value;
      if (value > high) high = value;
    };
    this.drawn.forEach((column, at) => {
      const errors = this.about.stacked ? [] : this.data.stderr[at];
      column.forEach((value, row) => {
        const step = this.data.steps[row];
        if (value === undefined || value === null || step < first || step > last) return;
        take(this.about.zero ? value : value - (errors[row] ?? 0));
        take(value + (errors[row] ?? 0));
      });
    });
    this.target?.values.forEach((value, row) => {
      if (value !== null && this.target.steps[row] >= first && this.target.steps[row] <= last) take(value * 1.25);
    });
    if (low > high) return [0, 1];
    const room = (high - low || Math.abs(high) || 1) * 0.06;
    return [this.about.zero && low >= 0 ? 0 : low - room, high + room];
  }

  _resize() {
    const width = this.area.clientWidth;
    if (this.plot && width > 0 && width !== this.plot.width) this.plot.setSize({ width, height: this.about.height });
  }

  // -------------------------------------------------------------- cursor

  _hover() {
    if (!this.hovered) return;
    const row = this.plot.cursor.idx;
    this.timeline.point(row === null || row === undefined ? null : this.data.steps[row]);
  }

  _select() {
    const { left, width } = this.plot.select;
    if (width < 4) return;
    const step = (at) => Math.round(this.plot.posToVal(at, "x"));
    this.plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    this.timeline.show([step(left), step(left + width)]);
  }

  _key(event) {
    const { steps } = this.data;
    if (steps.length === 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    const [first, last] = this.timeline.range;
    const [low, high] = [nearest(steps, first), nearest(steps, last)];
    const row = this.timeline.step === null ? high : nearest(steps, this.timeline.step);
    const by = event.shiftKey ? 10 : 1;
    const rows = {
      ArrowLeft: row - by,
      ArrowDown: row - by,
      ArrowRight: row + by,
      ArrowUp: row + by,
      Home: low,
      End: high,
    };
    if (event.key in rows) this.timeline.point(steps[Math.max(low, Math.min(high, rows[event.key]))]);
    else if (event.key === "+" || event.key === "=") this.timeline.zoomBy(0.5);
    else if (event.key === "-") this.timeline.zoomBy(2);
    else if (event.key === "Escape" && this.timeline.step !== null) this.timeline.point(null);
    else if (event.key === "Escape" && this.timeline.zoom !== null) this.timeline.show(null);
    else return;
    event.preventDefault();
  }

  // -------------------------------------------------------------- words

  /** Write the numbers of a row into the legend; what was last measured before it where it has none. */
  _read(row, pointed) {
    const { steps, values, stderr } = this.data;
    const spoken = [];
    this.about.lines.forEach((line, at) => {
      const found = atOrBefore(values[at], row);
      const text =
        found === null ? "" : found.value === null ? "not finite" : this._number(found.value, stderr[at][found.row]);
      const older = found !== null && pointed && steps[found.row] !== steps[row];
      this.readings[at].textContent = older ? `${text} (step ${whole(steps[found.row])})` : text;
      if (text !== "") spoken.push(`${line.label} ${text}`);
    });
    if (this.target && this.target.steps.length > 0) {
      const value = this.target.values[nearest(this.target.steps, steps[row])];
      this.targetReading.textContent = number(value);
      spoken.push(`target ${number(value)}`);
    }
    this.at.textContent = pointed ? `step ${whole(steps[row])}` : "";
    this.area.setAttribute("aria-valuenow", steps[row]);
    this.area.setAttribute("aria-valuetext", `step ${steps[row]}: ${spoken.join(", ")}`);
  }

  /** Parts of a whole are read without their errors, so that all of them fit beside one another. */
  _number(value, error) {
    return this.about.stacked ? number(value) : withError(value, error);
  }

  _toggleTable() {
    this.tabled = !this.tabled;
    this.toggle.setAttribute("aria-pressed", String(this.tabled));
    this.table.hidden = !this.tabled;
    if (this.tabled) refill(this.table, table(this.about, this.data, this.timeline.range));
    else this.table.replaceChildren();
  }
}

function minus(value, error) {
  return value === undefined || value === null ? value : value - (error ?? 0);
}

/** The row whose step is nearest, in a sorted list. */
function nearest(steps, step) {
  let low = 0;
  let high = steps.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (steps[middle] <= step) low = middle;
    else high = middle;
  }
  return Math.abs(steps[high] - step) < Math.abs(steps[low] - step) ? high : low;
}

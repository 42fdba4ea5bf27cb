// What the charts of a page share: the steps that are shown, and the step under the cursor.

import { say } from "/static/watch_dom.js";

export class Timeline {
  constructor() {
    this.charts = new Set();
    this.listeners = new Set();
    this.zoom = null; // [first, last], or null for all steps
    this.step = null; // under the cursor
    this.windows = []; // {first, last, severity}, shaded in every chart
  }

  add(chart) {
    this.charts.add(chart);
  }

  remove(chart) {
    this.charts.delete(chart);
  }

  /** First and last step that is drawn. */
  get range() {
    return this.zoom ?? this.all;
  }

  /** First and last step that any chart has a number for. */
  get all() {
    const ends = [...this.charts].map((chart) => chart.ends).filter((one) => one !== null);
    if (ends.length === 0) return [0, 1];
    const first = Math.min(...ends.map(([low]) => low));
    const last = Math.max(...ends.map(([, high]) => high));
    return [first, Math.max(last, first + 1)];
  }

  /** Put the cursor of every chart on a step; null takes it away. */
  point(step, aloud = "") {
    if (step === this.step && aloud === "") return;
    this.step = step;
    for (const chart of this.charts) chart.pointAt(step);
    if (aloud !== "") say(aloud);
  }

  /** Show only the steps from `first` to `last`; null shows all. */
  show(range) {
    const [low, high] = this.all;
    if (range !== null) {
      const first = Math.max(low, Math.min(range[0], range[1]));
      const last = Math.min(high, Math.max(range[0], range[1]));
      if (last - first < 1) return;
      range = first <= low && last >= high ? null : [first, last];
    }
    this.zoom = range;
    this.redraw();
    for (const heard of this.listeners) heard(this.zoom);
  }

  /** Zoom by a factor around the cursor, or around the middle. */
  zoomBy(factor) {
    const [first, last] = this.range;
    const middle = this.step ?? (first + last) / 2;
    this.show([Math.round(middle - (middle - first) * factor), Math.round(middle + (last - middle) * factor)]);
  }

  redraw() {
    for (const chart of this.charts) chart.redraw();
  }
}

// The numbers of a run as they arrive, and how a chart lays several series over one axis of steps.

import { askSeries } from "/static/watch_api.js";

export const POINTS = 2000; // of a series: more than a chart has pixels
const MOST = 20_000; // that the server gives at once

/** Holds the series of one run. New steps are added at the end; a reduced or a shortened one is read afresh. */
export class Numbers {
  constructor(id) {
    this.id = id;
    this.series = new Map();
    this.last = -1;
    this.reduced = false;
  }

  /** Read series that are not here yet, whole. */
  async want(keys) {
    const missing = keys.filter((key) => !this.series.has(key));
    if (missing.length === 0) return;
    const { series, last, reduced } = await askSeries(this.id, missing, -1, POINTS);
    for (const key of missing) this.series.set(key, series[key] ?? empty());
    this.last = this.last < 0 ? last : Math.min(this.last, last);
    this.reduced ||= reduced;
  }

  /** Bring every series that is here up to `step`. */
  async follow(step) {
    if (this.series.size === 0) return;
    if (step < this.last || this.longest() > 2 * POINTS) return this.again();
    const keys = [...this.series.keys()];
    const { series, last, reduced } = await askSeries(this.id, keys, this.last, POINTS);
    if (reduced) return this.again();
    for (const key of keys) extend(this.series.get(key), series[key] ?? empty(), this.last);
    this.last = Math.max(this.last, last);
  }

  /** Read everything afresh: the run went back, or there are more points than a chart can show. */
  async again() {
    const keys = [...this.series.keys()];
    const { series, last, reduced } = await askSeries(this.id, keys, -1, POINTS);
    for (const key of keys) this.series.set(key, series[key] ?? empty());
    this.last = last;
    this.reduced = reduced;
  }

  /** Read the steps from `first` on with so many points that the range up to `end` has `POINTS` of them. */
  async closer(first, end, keys) {
    const share = (this.last - first + 1) / Math.max(1, end - first + 1);
    const { series } = await askSeries(this.id, keys, first - 1, Math.min(MOST, Math.ceil(POINTS * share)));
    return new Map(keys.map((key) => [key, series[key] ?? empty()]));
  }

  /** Whether a series has been read, with numbers in it or without. */
  has(key) {
    return this.series.has(key);
  }

  get(key) {
    return this.series.get(key) ?? empty();
  }

  longest() {
    return Math.max(0, ...[...this.series.values()].map((one) => one.steps.length));
  }
}

function empty() {
  return { steps: [], values: [], stderr: [] };
}

function extend(held, news, after) {
  const from = news.steps.findIndex((step) => step > after);
  if (from < 0) return;
  held.steps.push(...news.steps.slice(from));
  held.values.push(...news.values.slice(from));
  held.stderr.push(...(news.stderr ?? []).slice(from));
}

/**
 * Lay series over the union of their steps: `undefined` where one has no number for a step of another, `null` where
 * its number is not finite.
 */
export function aligned(list) {
  const steps = [...new Set(list.flatMap((one) => one.steps))].sort((a, b) => a - b);
  const at = new Map(steps.map((step, index) => [step, index]));
  const spread = (one, column) => {
    const out = new Array(steps.length);
    one.steps.forEach((step, index) => (out[at.get(step)] = one[column]?.[index] ?? null));
    return out;
  };
  return {
    steps,
    values: list.map((one) => spread(one, "values")),
    stderr: list.map((one) => spread(one, "stderr")),
  };
}

/** Sums from the first series up to each, for areas that stand on one another. */
export function stacked(columns) {
  const sums = [];
  columns.forEach((column, index) => {
    sums.push(column.map((value, row) => (value ?? 0) + (index > 0 ? sums[index - 1][row] : 0)));
  });
  return sums;
}

/** The number of a column at a row, or the newest one before it; null where there is none yet. */
export function atOrBefore(column, row) {
  for (let at = row; at >= 0; at -= 1) if (column[at] !== undefined) return { row: at, value: column[at] };
  return null;
}

/** First, last, smallest and largest of a column, each with its row; null for a column without a finite number. */
export function extremes(column) {
  let found = null;
  column.forEach((value, row) => {
    if (value === undefined || value === null) return;
    const here = { row, value };
    found ??= { first: here, last: here, low: here, high: here };
    found.last = here;
    if (value < found.low.value) found.low = here;
    if (value > found.high.value) found.high = here;
  });
  return found;
}

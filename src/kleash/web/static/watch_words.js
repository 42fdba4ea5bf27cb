// Numbers and times in words, the same on every part of the page.

const NARROW = "\u202f"; // a narrow space that does not break, between thousands

export const RANK = ["info", "warning", "critical"];

/** For sorting: the severest first. */
export const bySeverity = (one, other) => RANK.indexOf(other.severity) - RANK.indexOf(one.severity);

export const HEALTH = {
  ok: { mark: "●", word: "OK" },
  warning: { mark: "▲", word: "Warning" },
  critical: { mark: "◆", word: "Critical" },
  "not watched": { mark: "○", word: "Not watched" },
  unreadable: { mark: "✕", word: "Unreadable" },
  info: { mark: "●", word: "Info" },
};

/** Four significant digits; what is not finite came as null. */
export function number(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(2).replace("e+", "e");
  if (size >= 1000) return whole(Math.round(value));
  const digits = size === 0 ? 0 : Math.min(4, Math.max(0, 3 - Math.floor(Math.log10(size))));
  return String(Number(value.toFixed(digits)));
}

/** A value and its standard error, with as many digits as the error gives reason for. */
export function withError(value, stderr) {
  if (value === null || value === undefined) return "–";
  if (!stderr || stderr <= 0 || Math.abs(value) >= 1000) return number(value);
  const digits = Math.max(0, 1 - Math.floor(Math.log10(stderr)));
  if (digits > 5) return number(value);
  return `${value.toFixed(digits)} ± ${stderr.toFixed(digits)}`;
}

export function whole(value) {
  const text = String(value);
  return Math.abs(value) < 10_000 ? text : text.replace(/\B(?=(\d{3})+$)/g, NARROW);
}

/** The texts of an axis's ticks, all with the same number of decimals. */
export function ticks(splits) {
  if (splits.length < 2) return splits.map(number);
  const step = Math.abs(splits[1] - splits[0]);
  if (step >= 1e6 || step < 1e-5) return splits.map((value) => (value === 0 ? "0" : value.toExponential(1)));
  let digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  if (Math.abs(step * 10 ** digits - Math.round(step * 10 ** digits)) > 1e-6) digits += 1; // such as 0.25
  return splits.map((value) => (digits === 0 ? whole(Math.round(value)) : value.toFixed(digits)));
}

export function count(many, noun) {
  return `${whole(many)} ${noun}${many === 1 ? "" : "s"}`;
}

/** The steps of something with a beginning; without an end it goes on. */
export function span(first, last) {
  if (last === null || last === undefined) return `from step ${whole(first)}`;
  return first === last ? `step ${whole(first)}` : `steps ${whole(first)}–${whole(last)}`;
}

/** Where a run's newest number comes from. */
export function measuredIn(key, step) {
  if (key === null || key === undefined) return "";
  return `${key.startsWith("eval/") ? "held out, " : ""}step ${whole(step)}`;
}

export function date(text) {
  const when = text ? new Date(text) : null;
  if (when === null || Number.isNaN(when.getTime())) return "";
  const two = (part) => String(part).padStart(2, "0");
  const day = `${when.getFullYear()}-${two(when.getMonth() + 1)}-${two(when.getDate())}`;
  return `${day} ${two(when.getHours())}:${two(when.getMinutes())}`;
}

/** A setting's value as one would write it. */
export function setting(value) {
  if (value === undefined) return "";
  return typeof value === "string" ? value : JSON.stringify(value);
}

export function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

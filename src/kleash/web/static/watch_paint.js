// What is painted on a chart's canvas under and over its lines: shaded windows, the target's band, standard errors.

const TOLERANCE = 0.25; // of the target: the band that a run's report draws too
const probe = document.createElement("span");
probe.hidden = true;
const resolved = new Map();

/** The colour of a custom property, as a canvas needs it, in the theme that is on. */
export function tone(name, opacity = 1) {
  if (!resolved.has(name)) {
    if (!probe.isConnected) document.body.append(probe);
    probe.style.color = `var(--${name})`;
    resolved.set(name, getComputedStyle(probe).color);
  }
  const colour = resolved.get(name);
  return opacity === 1 ? colour : colour.replace(/^rgb\((.*)\)$/, (_, parts) => `rgba(${parts}, ${opacity})`);
}

/** Forget the colours: the theme has changed. */
export function forgetTones() {
  resolved.clear();
}

const SEVERITY = { warning: "drift", critical: "alarm" };

/** Shade the steps under an alarm, once for each severity however many alarms there are. */
export function paintWindows(plot, windows) {
  const { left, top, width, height } = plot.bbox;
  inside(plot, (canvas) => {
    for (const [severity, colour] of Object.entries(SEVERITY)) {
      canvas.beginPath();
      for (const { first, last } of windows.filter((one) => one.severity === severity)) {
        const from = Math.max(left, plot.valToPos(first - 0.5, "x", true));
        const to = Math.min(left + width, last === null ? left + width : plot.valToPos(last + 0.5, "x", true));
        if (to > from) canvas.rect(from, top, to - from, height);
      }
      canvas.fillStyle = tone(colour, 0.08);
      canvas.fill();
    }
  });
}

/** Draw the target as a dashed line with its band. */
export function paintTarget(plot, { steps, values }) {
  const low = values.map((value) => (value === null ? null : value * (1 - TOLERANCE)));
  const high = values.map((value) => (value === null ? null : value * (1 + TOLERANCE)));
  paintBand(plot, steps, low, high, tone("drift", 0.1));
  inside(plot, (canvas) => {
    canvas.strokeStyle = tone("drift", 0.65);
    canvas.lineWidth = devicePixelRatio;
    canvas.setLineDash([2 * devicePixelRatio, 3 * devicePixelRatio]);
    canvas.beginPath();
    let pen = false;
    values.forEach((value, row) => {
      if (value === null || value === undefined) return;
      const [x, y] = [plot.valToPos(steps[row], "x", true), plot.valToPos(value, "y", true)];
      if (pen) canvas.lineTo(x, y);
      else canvas.moveTo(x, y);
      pen = true;
    });
    canvas.stroke();
  });
}

/** Fill between two columns; a row without a number ends the band, one of another series (undefined) is passed over. */
export function paintBand(plot, steps, low, high, colour) {
  inside(plot, (canvas) => {
    canvas.fillStyle = colour;
    let rows = [];
    const fill = () => {
      if (rows.length > 0) outline(plot, canvas, steps, low, high, rows);
      rows = [];
    };
    for (let row = 0; row < steps.length; row += 1) {
      if (low[row] === undefined) continue;
      if (low[row] === null || high[row] === null) fill();
      else rows.push(row);
    }
    fill();
  });
}

function outline(plot, canvas, steps, low, high, rows) {
  canvas.beginPath();
  for (const row of rows) canvas.lineTo(plot.valToPos(steps[row], "x", true), plot.valToPos(high[row], "y", true));
  for (const row of rows.toReversed()) {
    canvas.lineTo(plot.valToPos(steps[row], "x", true), plot.valToPos(low[row], "y", true));
  }
  canvas.fill();
}

/** Mark each step whose number is NaN or infinite with a cross at the top. */
export function paintBroken(plot, steps, columns) {
  inside(plot, (canvas) => {
    canvas.fillStyle = tone("alarm");
    canvas.font = `700 ${12 * devicePixelRatio}px sans-serif`;
    canvas.textAlign = "center";
    for (const column of columns) {
      column.forEach((value, row) => {
        if (value !== null) return;
        canvas.fillText("×", plot.valToPos(steps[row], "x", true), plot.bbox.top + 11 * devicePixelRatio);
      });
    }
  });
}

/** Paint within the plot's frame, and leave the canvas as it was. */
function inside(plot, paint) {
  const { left, top, width, height } = plot.bbox;
  plot.ctx.save();
  plot.ctx.beginPath();
  plot.ctx.rect(left, top, width, height);
  plot.ctx.clip();
  paint(plot.ctx);
  plot.ctx.restore();
}

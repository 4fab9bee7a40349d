"use strict";
// Draws every ".plot" by plotly.js, from the JSON beside it. Colours there are names of CSS variables.
{
  const root = document.documentElement;
  const places = [...document.querySelectorAll(".plot")];
  const colourOf = (name) => getComputedStyle(root).getPropertyValue(name).trim();

  // Gantt chart: lines of [length, run, length, run, ...] in samples, the lowest GPU first; run -1 is idle.
  const painted = (gantt) => {
    const canvas = document.createElement("canvas"), brush = canvas.getContext("2d");
    canvas.width = gantt.columns;
    canvas.height = gantt.lines.length;
    const shades = gantt.shades.map(([name, alpha]) => [colourOf(name), alpha]);
    gantt.lines.forEach((spans, line) => {
      for (let i = 0, at = 0; i < spans.length; at += spans[i], i += 2) {
        if (spans[i + 1] < 0) continue;
        [brush.fillStyle, brush.globalAlpha] = shades[gantt.shade[spans[i + 1]]];
        brush.fillRect(at, canvas.height - 1 - line, spans[i], 1);
      }
    });
    return canvas.toDataURL();
  };

  // The run at a place of the Gantt chart, in words.
  const pointedAt = (place, gantt, event) => {
    const { xaxis, yaxis, _size } = place._fullLayout, box = place.getBoundingClientRect();
    const x = xaxis.p2c(event.clientX - box.left - _size.l), y = yaxis.p2c(event.clientY - box.top - _size.t);
    const column = Math.floor((x - xaxis.d2c(gantt.begin)) / gantt.dx), low = gantt.gpus[0] - 0.5;
    const high = gantt.gpus[gantt.gpus.length - 1] + 0.5;
    const line = Math.floor(((y - low) / (high - low)) * gantt.lines.length), spans = gantt.lines[line];
    if (!spans || column < 0 || column >= gantt.columns) return "";
    let i = 0;
    for (let end = spans[0]; end <= column; end += spans[i]) i += 2;
    const run = spans[i + 1], when = xaxis.type === "date" ? xaxis.c2d(x).slice(0, 16) : `${x.toFixed(2)} ${gantt.unit}`;
    return `GPU ${gantt.gpus[line]}, ${when}: ${run < 0 ? "idle" : `job ${gantt.job[run]}`}`;
  };

  const figureOf = (place) => JSON.parse(place.nextElementSibling.textContent, (key, value) =>
    /color$/.test(key) && typeof value === "string" && value.startsWith("--") ? colourOf(value) : value);

  const draw = () => {
    for (const place of places) {
      const { data, layout, gantt } = figureOf(place);
      if (gantt) layout.images[0].source = painted(gantt);
      Plotly.react(place, data, layout, { displayModeBar: false, responsive: true });
    }
  };

  const readable = () => {
    for (const place of places) {
      const { gantt } = figureOf(place), said = place.closest("figure").querySelector("output");
      if (gantt && said) place.addEventListener("pointermove", (event) => { said.textContent = pointedAt(place, gantt, event) || "\u00a0"; });
    }
  };

  const onPaper = (paper) => () => {
    root.classList.toggle("paper", paper);
    draw();
  };

  document.addEventListener("DOMContentLoaded", () => {
    draw();
    readable();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
    addEventListener("beforeprint", onPaper(true));
    addEventListener("afterprint", onPaper(false));
  });
}

// Draws one figure with Plotly.react, so that zoom and camera outlive new data, and tells Python what the reader did.

const QUIET_MS = 350;
const STILL_PX = 5;
const figures = new WeakMap();
let library = null;

function plotly(url) {
  if (window.Plotly) return Promise.resolve(window.Plotly);
  library ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = new URL(url, document.baseURI).href;
    script.onload = () => resolve(window.Plotly);
    script.onerror = () => {
      library = null;
      script.remove();
      reject(new Error(`The drawing library could not be loaded from ${script.src}; reload the page.`));
    };
    document.head.append(script);
  });
  return library;
}

// The page's own background decides, because Python learns about a changed theme only with the next run.
function pageIsDark() {
  const app = document.querySelector(".stApp") ?? document.body;
  const [r, g, b] = (getComputedStyle(app).backgroundColor.match(/[\d.]+/g) ?? [255, 255, 255]).map(Number);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b < 128;
}

function axesOf(layout, pattern) {
  return Object.keys(layout).filter((name) => pattern.test(name));
}

// What the reader changed by hand: the ranges of zoomed axes and the eye of each turned scene.
function lookOf(div) {
  const full = div._fullLayout ?? {};
  const ranges = {};
  for (const name of axesOf(full, /^[xy]axis\d*$/)) {
    if (full[name].autorange === false && div.loopscopeZoomed?.has(name)) ranges[name] = [...full[name].range];
  }
  const eyes = {};
  for (const name of axesOf(full, /^scene\d*$/)) {
    const camera = full[name]._scene?.getCamera?.() ?? full[name].camera;
    if (camera?.eye) eyes[name] = { x: camera.eye.x, y: camera.eye.y, z: camera.eye.z };
  }
  return { ranges, eyes };
}

// A look from before (another page, a shared link) goes into every layout of this mount: Plotly keeps what the
// reader changes on top of it, as long as what it was given stays the same.
function withLook(layout, look) {
  for (const [name, range] of Object.entries(look?.ranges ?? {})) {
    if (layout[name]) Object.assign(layout[name], { range, autorange: false });
  }
  for (const [name, eye] of Object.entries(look?.eyes ?? {})) {
    if (layout[name]) layout[name].camera = { ...(layout[name].camera ?? {}), eye };
  }
}

// Plotly rounds a camera when it first draws a scene and then no longer takes the same numbers for the same camera,
// so uirevision alone would put it back; the camera on screen is handed on as it is.
function keepCameras(layout, div) {
  for (const name of axesOf(layout, /^scene\d*$/)) {
    const camera = div._fullLayout?.[name]?._scene?.getCamera?.();
    if (camera) layout[name].camera = camera;
  }
}

function listen(figure) {
  const { div } = figure;
  div.loopscopeZoomed = new Set(Object.keys(figure.given?.ranges ?? {}));
  // In space a click is told when the button goes down, so turning the scene would select what it started on.
  let pressed = null;
  let waiting = null;
  const send = (keys) => figure.send.setTriggerValue("clicked", keys);
  div.addEventListener("pointerdown", (event) => {
    pressed = event;
    waiting = null;
  }, true);
  figure.release = (event) => {
    const still = pressed && Math.hypot(event.clientX - pressed.clientX, event.clientY - pressed.clientY) < STILL_PX;
    pressed = null;
    if (waiting && still) send(waiting);
    waiting = null;
  };
  window.addEventListener("pointerup", figure.release, true);
  div.on("plotly_click", (event) => {
    const row = event.points?.[0]?.customdata;
    if (!Array.isArray(row)) return;
    const names = event.points[0].data?.meta?.columns ?? [];
    const value = (name) => row[names.indexOf(name)] ?? null;
    const [prompt, position, block, loop] = row;
    const keys = { prompt, position, block, loop, rule: value("rule"), point: value("point") };
    if (pressed) waiting = keys;
    else send(keys);
  });
  div.on("plotly_relayout", (change) => {
    let byHand = false;
    for (const key of Object.keys(change ?? {})) {
      const [name, part] = key.split(".");
      byHand ||= part === "camera";
      if (!/^[xy]axis\d*$/.test(name)) continue;
      if (part === "autorange") {
        div.loopscopeZoomed.delete(name);
        delete figure.given?.ranges?.[name];
        byHand = true;
      } else if (part?.startsWith("range")) {
        div.loopscopeZoomed.add(name);
        byHand = true;
      }
    }
    if (!byHand) return;
    clearTimeout(figure.timer);
    figure.timer = setTimeout(() => figure.send.setStateValue("look", lookOf(div)), QUIET_MS);
  });
  figure.observer = new ResizeObserver(() => window.Plotly.Plots.resize(div));
  figure.observer.observe(div);
}

async function draw(figure, data) {
  if (data.figure === figure.drawn) return;
  figure.div.style.opacity = figure.drawn === null ? "1" : "0.35"; // old numbers are never shown as if they were new
  const Plotly = await plotly(data.library);
  if (!figure.div.isConnected) return;
  const { data: traces, layout } = JSON.parse(data.figure);
  const fresh = figure.drawn === null || figure.revision !== layout.uirevision;
  if (fresh) figure.given = data.look;
  figure.revision = layout.uirevision;
  figure.div.style.minWidth = `${layout.meta?.least_width ?? 0}px`;
  withLook(layout, figure.given);
  if (!fresh) keepCameras(layout, figure.div);
  await Plotly.react(figure.div, traces, layout, {
    displaylogo: false,
    modeBarButtonsToRemove: ["toImage", "select2d", "lasso2d", "autoScale2d"],
  });
  if (figure.drawn === null) listen(figure);
  figure.drawn = data.figure;
  figure.div.style.opacity = "1";
  figure.div.dataset.drawn = data.key;
}

export default function (component) {
  const { data, parentElement, setStateValue, setTriggerValue } = component;
  const div = parentElement.querySelector(".loopscope-figure");
  if (!div || !data) return;
  let figure = figures.get(div);
  if (!figure) {
    figure = { div, drawn: null, revision: null, given: null, timer: 0, observer: null, release: null, queue: Promise.resolve(), dark: null };
    figures.set(div, figure);
  }
  figure.send = { setStateValue, setTriggerValue };
  div.setAttribute("role", "figure");
  div.setAttribute("aria-label", data.alt);
  div.style.minHeight = `${data.height}px`;
  figure.queue = figure.queue
    .then(() => draw(figure, data))
    .catch((error) => {
      div.textContent = error.message;
    });
  const dark = pageIsDark();
  if (dark !== data.dark && dark !== figure.dark) {
    figure.dark = dark;
    setStateValue("dark", dark);
  }
  return () => {
    clearTimeout(figure.timer);
    figure.observer?.disconnect();
    window.removeEventListener("pointerup", figure.release, true);
    if (figure.drawn !== null) window.Plotly?.purge(div);
    figures.delete(div);
  };
}

// The dashboard: reads the admin routes of this gateway every two seconds and shows them.
//
// Everything that comes from the gateway is put into the page as text, never as markup. The key, where one is needed,
// is kept in sessionStorage and sent as a header; it is in no URL and no cookie.
"use strict";

const REFRESH_MS = 2000, DOCTOR_MS = 30000, USAGE_MS = 15000, SURE_MS = 4000, DEADLINE_MS = 10000, KEY = "llmgw.key";
const UNKNOWN = "unavailable";
const BUSY = new Set(["queued", "starting", "warming", "draining", "stopping"]);
const $ = (id) => document.getElementById(id);
const seen = { at: 0, failed: "", doctorAt: 0, usageAt: 0 };

class Refused extends Error {
  constructor(status, error) {
    super(error.message || `The gateway answered ${status}.`);
    this.status = status;
  }
}

// Asking

async function ask(path, options = {}) {
  const key = sessionStorage.getItem(KEY), headers = { ...options.headers };
  if (key) headers.authorization = `Bearer ${key}`;
  const signal = options.method === "POST" ? undefined : AbortSignal.timeout(DEADLINE_MS);
  const answer = await fetch(path, { ...options, headers, signal, cache: "no-store", credentials: "omit" });
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Refused(answer.status, body.error || {});
  return body;
}

// Showing: tables keep their rows from one look to the next, so that nobody loses a button under the pointer.

const put = (node, text) => { if (node.textContent !== text) node.textContent = text; };

function cell(td, value) {
  if (value instanceof Node) {
    if (td.firstChild !== value) td.replaceChildren(value);
    return;
  }
  const { text, kind } = value !== null && typeof value === "object" ? value : { text: value, kind: "" };
  td.className = kind || "";
  put(td, text === null || text === undefined || text === "" ? UNKNOWN : String(text));
}

function table(id, columns, rows, none) {
  const node = $(id);
  if (!node.tHead) {
    const head = node.createTHead().insertRow();
    for (const name of columns) head.append(Object.assign(document.createElement("th"), { textContent: name }));
    node.createTBody();
    node.kept = new Map();
  }
  const body = node.tBodies[0], wanted = new Set(rows.map(([key]) => key));
  for (const [key, row] of node.kept) if (!wanted.has(key)) { row.remove(); node.kept.delete(key); }
  rows.forEach(([key, make], place) => {
    let row = node.kept.get(key);
    if (!row) {
      row = document.createElement("tr");
      row.dataset.id = key;
      for (const name of columns) row.insertCell().dataset.label = name;
      node.kept.set(key, row);
    }
    make(row).forEach((value, index) => cell(row.cells[index], value));
    if (body.rows[place] !== row) body.insertBefore(row, body.rows[place] || null);
  });
  if (!node.caption) node.createCaption().className = "quiet";
  put(node.caption, rows.length ? "" : none);
  node.tHead.hidden = !rows.length;
}

const percent = (share) => (share === null || share === undefined ? null : `${Math.round(share * 100)} %`);
const gib = (bytes) => (bytes === null || bytes === undefined ? null : `${(bytes / 2 ** 30).toFixed(1)} GiB`);
const unit = (value, name) => (value === null || value === undefined ? null : `${value} ${name}`);
const both = (one, other) => (one === null || other === null ? null : `${one} of ${other}`);

function span(seconds) {
  if (!Number.isFinite(seconds)) return UNKNOWN;
  const s = Math.max(0, Math.round(seconds));
  if (s < 120) return `${s} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  return s < 172800 ? `${Math.round(s / 3600)} h` : `${Math.round(s / 86400)} d`;
}

const since = (when) => (when ? span((Date.now() - Date.parse(when)) / 1000) : "");

function facts(id, pairs) {
  const node = $(id);
  if (node.childElementCount !== pairs.length) {
    node.replaceChildren(...pairs.map(() => {
      const part = document.createElement("div");
      part.append(document.createElement("dt"), document.createElement("dd"));
      return part;
    }));
  }
  pairs.forEach(([name, value], index) => {
    put(node.children[index].firstChild, name);
    cell(node.children[index].lastChild, value);
  });
}

function showNode(node, status) {
  const t = node.telemetry || {}, memory = t.memory || {}, cpu = t.cpu || {}, wall = node.firewall || {};
  const config = status.config || {}, gateway = status.gateway || {};
  put($("node"), node.name);
  document.title = `${node.name} · llmgw`;
  facts("machine", [
    ["System", [node.system.platform, node.system.arch, node.system.release].filter(Boolean).join(" ")],
    ["Processors", both(percent(cpu.utilization), unit(cpu.logicalCpus, "CPUs")) || unit(cpu.logicalCpus, "CPUs")],
    ["Memory", both(gib(memory.usedBytes ?? null), gib(memory.totalBytes ?? null))],
    ["Up", span(node.system.uptimeSeconds ?? NaN)],
    ["Targets", { text: `${gateway.readyEndpointCount} of ${gateway.endpointCount} ready`, kind: gateway.inferenceReady ? "good" : "busy" }],
    ["Daemon", gateway.daemonConnected ? { text: "connected", kind: "good" } : { text: "away", kind: "bad" }],
    ["Config", config.error ? { text: config.error, kind: "bad" } : { text: "in use", kind: "good" }],
    ["Firewall", { text: wall.reason ? `${wall.state}: ${wall.reason}` : wall.state || UNKNOWN, kind: { guarded: "good", unguarded: "bad" }[wall.state] }],
    ["Version", node.version],
  ]);
}

function showCards(gpu) {
  const cards = (gpu && gpu.devices) || [];
  table("cards", ["Card", "Compute", "Memory", "Temperature", "Power", "Problems"], cards.map((card) => [
    card.uuid || String(card.index), () => [
      `${card.index ?? ""} ${card.name}`.trim(),
      unit(card.utilization, "%"),
      both(unit(card.memoryUsedMb, "MiB"), unit(card.memoryTotalMb, "MiB")),
      unit(card.temperatureC, "°C"),
      unit(card.powerDrawW, "W"),
      card.problems.length ? { text: card.problems.join(", "), kind: "bad" } : "none",
    ],
  ]), "No GPU that a driver knows.");
}

function stateOf(runtime) {
  const kind = runtime.status === "running" ? "good" : runtime.status === "failed" ? "bad" : BUSY.has(runtime.status) ? "busy" : "quiet";
  const reason = runtime.transitionReason ? `: ${runtime.transitionReason}` : "";
  return { text: runtime.status + reason + (runtime.hold ? " (held)" : ""), kind };
}

function showRuntimes(runtimes) {
  const rows = Object.values(runtimes).sort((a, b) => a.id.localeCompare(b.id));
  table("runtimes", ["Runtime", "State", "Since", "Engine", "On", "Memory", "Requests", "Waiting", ""], rows.map((runtime) => [
    runtime.id, (row) => [
      runtime.id,
      stateOf(runtime),
      since(runtime.statusSince),
      [runtime.engine, runtime.build].filter(Boolean).join(" "),
      runtime.on || "–",
      runtime.memoryMib === null ? "–" : unit(runtime.memoryMib, "MiB"),
      `${runtime.activeRequests} of ${runtime.maxConcurrency}`,
      runtime.queuedRequests,
      buttons(row, runtime),
    ],
  ]), "No runtimes. llmgw model add smollm2-135m adds a small one.");
}

function standingOf(backend) {
  const kind = backend.state === "ready" ? "good" : backend.state === "resting" ? "busy" : backend.state === "disabled" ? "quiet" : "bad";
  const reason = backend.reason || (kind === "good" ? "" : backend.lastError);
  return { text: backend.state + (reason ? `: ${reason}` : ""), kind };
}

function showModels(models, runtimes, backends) {
  table("models", ["Model", "Kind", "Context", "Aliases", "Served by", "State"], models.map((model) => [
    model.id, () => [
      model.id + (model.advertise ? "" : " (hidden)"),
      model.kind,
      model.contextWindow ?? "–",
      (model.aliases || []).join(", ") || "–",
      (model.targets || []).map((target) => target.id).join(", ") || "–",
      runtimes[model.runtime] ? stateOf(runtimes[model.runtime]) : backends[model.backend] ? standingOf(backends[model.backend]) : UNKNOWN,
    ],
  ]), "No models.");
}

function showDoctor(report) {
  const wrong = report.findings.filter((finding) => finding.status !== "ok");
  table("doctor", ["Check", "Found", "What mends it"], wrong.map((finding, index) => [
    `${finding.check} ${index}`, () => [
      { text: finding.check, kind: finding.status === "blocks" ? "bad" : "busy" }, finding.found, finding.remedy || "–",
    ],
  ]), "Nothing is wrong with this node.");
}

function showUsage(report) {
  table("usage", ["Key", "Model", "Requests", "Cut short", "Prompt tokens", "Answer tokens", "Wasted"], report.rows.map((row) => [
    JSON.stringify([row.key, row.model]), () => [
      row.key || "(none)", row.model, row.requests, row.cutShort, row.promptTokens, row.completionTokens, row.wastedTokens,
    ],
  ]), "No requests yet.");
}

// Doing: a first click asks, a second one does it.

const ACTIONS = { start: "Start", stop: "Stop", restart: "Restart" };

function actionsFor(status) {
  if (status === "stopped" || status === "failed") return ["start"];
  return status === "running" ? ["stop", "restart"] : status === "stopping" || status === "draining" ? [] : ["stop"];
}

function buttons(row, runtime) {
  const box = row.buttons || (row.buttons = document.createElement("span")), allowed = new Set(actionsFor(runtime.status));
  if (!box.childElementCount) {
    for (const [action, label] of Object.entries(ACTIONS)) {
      const button = Object.assign(document.createElement("button"), { textContent: label, type: "button" });
      button.dataset.action = action;
      button.setAttribute("aria-label", `${label} ${runtime.id}`);
      button.addEventListener("click", () => press(button, runtime.id, action));
      box.append(button);
    }
  }
  for (const button of box.children) button.hidden = !allowed.has(button.dataset.action) && !button.disabled;
  return box;
}

function press(button, id, action) {
  if (action !== "start" && !button.classList.contains("sure")) {
    button.classList.add("sure");
    put(button, `${ACTIONS[action]}: sure?`);
    setTimeout(() => calm(button, action), SURE_MS);
    return;
  }
  calm(button, action);
  perform(button, id, action);
}

function calm(button, action) {
  button.classList.remove("sure");
  put(button, ACTIONS[action]);
}

async function perform(button, id, action) {
  button.disabled = true;
  put($("told"), "");
  try {
    await ask(`/gateway/runtimes/${encodeURIComponent(id)}/${action}`, {
      method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(action === "start" ? { wait: false } : {}),
    });
  } catch (error) {
    put($("told"), `${ACTIONS[action]} ${id}: ${error.message}`);
  } finally {
    button.disabled = false;
  }
  look();
}

// Looking

async function readAll() {
  const [node, status] = await Promise.all([ask("/gateway/node"), ask("/gateway/status")]);
  showNode(node.node, status);
  showCards(node.node.telemetry && node.node.telemetry.gpu);
  const runtimes = status.runtimeManager.runtimes;
  showRuntimes(runtimes);
  showModels(node.node.models, runtimes, Object.fromEntries((node.node.backends || []).map((backend) => [backend.id, backend])));
  const now = Date.now();
  if (now - seen.doctorAt >= DOCTOR_MS) {
    seen.doctorAt = now;
    ask("/gateway/doctor").then(showDoctor, () => { seen.doctorAt = 0; });
  }
  if (now - seen.usageAt >= USAGE_MS) {
    seen.usageAt = now;
    const today = new Date().toISOString().slice(0, 10);
    ask(`/gateway/usage?from=${today}&to=${today}&by=key,model`).then(showUsage, () => { seen.usageAt = 0; });
  }
}

let looking = null;

function look() {
  looking = looking || lookOnce().finally(() => { looking = null; });
  return looking;
}

async function lookOnce() {
  try {
    await readAll();
    seen.at = Date.now();
    seen.failed = "";
    wantKey(false);
  } catch (error) {
    if (error instanceof Refused && error.status === 401) wantKey(true);
    else seen.failed = error instanceof Refused ? error.message : "The gateway does not answer.";
  }
  showAge();
}

function wantKey(wanted) {
  const had = sessionStorage.getItem(KEY) !== null;
  if (wanted && had) put($("refused"), "This key does not open this.");
  if (wanted) sessionStorage.removeItem(KEY);
  $("ask").hidden = !wanted;
  $("main").hidden = wanted || !seen.at;
  $("forget").hidden = wanted || !had;
  seen.wantsKey = wanted;
}

function showAge() {
  const age = $("age");
  if (seen.wantsKey) { age.className = ""; put(age, "closed"); return; }
  const old = seen.failed !== "" || Date.now() - seen.at > 3 * REFRESH_MS;
  age.className = old ? "old" : "";
  const shown = seen.at ? `as of ${span((Date.now() - seen.at) / 1000)} ago` : "nothing seen yet";
  put(age, seen.failed ? `${seen.failed} Trying again; ${shown}.` : shown);
}

$("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEY, $("key").value);
  $("key").value = "";
  put($("refused"), "");
  look();
});

$("forget").addEventListener("click", () => {
  sessionStorage.removeItem(KEY);
  location.reload();
});

setInterval(showAge, 1000);
setInterval(() => { if (!document.hidden && !seen.wantsKey) look(); }, REFRESH_MS);
document.addEventListener("visibilitychange", () => { if (!document.hidden && !seen.wantsKey) look(); });
look();

// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0
"use strict";

// All text goes through textContent or setAttribute: names and errors may contain HTML.

const $ = (id) => document.getElementById(id);
const STATES = ["ready", "held", "waiting", "parked", "paused"];
const SHOWN = { ready: "ready", held: "in progress", waiting: "waiting", parked: "parked", paused: "paused", idle: "idle" };
const SAMPLES = 120; // of each sparkline

const seen = { summary: null, skew: 0, at: 0, past: new Map() };
const count = (n) => n.toLocaleString("en");
const plural = (n, one, many = one + "s") => `${count(n)} ${n === 1 ? one : many}`;
const now = () => Date.now() + seen.skew; // the server's clock

function h(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (name === "text") node.textContent = value;
    else if (value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.filter((c) => c !== null && c !== undefined));
  return node;
}

// sync keeps one child for each item, so that the focus stays where it is.
function sync(parent, items, keyOf, make) {
  const old = new Map([...parent.children].map((node) => [node.syncKey, node]));
  items.forEach((item, i) => {
    const key = keyOf(item);
    let node = old.get(key);
    old.delete(key);
    if (!node) {
      node = make(item);
      node.syncKey = key;
    }
    if (parent.children[i] !== node) parent.insertBefore(node, parent.children[i] ?? null);
    node.update?.(item);
  });
  old.forEach((node) => node.remove());
}

function put(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function empty(id, text) {
  $(id).hidden = !text;
  put($(id), text || "");
}

// Times

function duration(ms) {
  const s = Math.max(0, Math.round(ms / 1000));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 48 * 3600) return `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} min`;
  return `${Math.floor(s / 86400)} d`;
}

function clock(at) {
  const far = Math.abs(now() - at) > 12 * 3600e3;
  return new Date(at).toLocaleString("en-GB", { ...(far && { day: "numeric", month: "short" }), hour: "2-digit", minute: "2-digit", second: "2-digit" });
}

// ago is a time whose text ticks.
function ago(at, suffix = " ago") {
  const ms = Date.parse(at);
  if (!at || Number.isNaN(ms)) return h("span");
  const node = h("time", { datetime: at, title: new Date(ms).toLocaleString("en-GB"), "data-at": ms, "data-suffix": suffix });
  tick(node);
  return node;
}

function tick(node) {
  const left = now() - node.dataset.at;
  put(node, left < -500 ? `in ${duration(-left)}` : duration(left) + node.dataset.suffix);
}

// spent is a duration in milliseconds with two digits.
function spent(ms) {
  if (ms === undefined) return "–";
  if (ms >= 60e3) return duration(ms);
  const [n, unit] = ms >= 1000 ? [ms / 1000, "s"] : ms >= 1 ? [ms, "ms"] : [1000 * ms, "µs"];
  return `${n < 10 ? n.toFixed(1) : Math.round(n)} ${unit}`;
}

// Overview

function drawOverview() {
  const s = seen.summary;
  if (!s) return;
  const all = s.controllers, sum = (of) => all.reduce((n, c) => n + of(c), 0), failing = sum(failures);
  const rated = all.filter((c) => c.rate !== undefined);
  const totals = [
    ["Failing keys", count(failing), failing ? "bad" : ""], ["Ready", count(sum((c) => c.ready))], ["In progress", count(sum((c) => c.held))],
    ["Waiting", count(sum((c) => c.waiting))],
    ["Reconciles per second", rated.length ? rate(rated.reduce((n, c) => n + c.rate, 0)) : "–"],
  ];
  sync($("totals"), totals, (t) => t[0], ([name]) => {
    const value = h("dd"), node = h("div", {}, h("dt", { text: name }), value);
    node.update = ([, text, kind]) => { put(value, text); node.className = kind || ""; };
    return node;
  });
  const leading = all.filter((c) => c.leading).length;
  put($("leads"), !all.length ? "" : leading === all.length ? `This process leads ${all.length === 1 ? "its controller" : `all ${all.length} controllers`}.`
    : leading ? `This process leads ${leading} of ${all.length} controllers.`
      : "This process leads no controller. It is a standby, or has not started yet. Open the page of the leader to see its failing keys.");
  if (s.more) put($("leads"), `${$("leads").textContent} ${plural(s.more, "more controller")} not shown.`);
  put($("mode"), s.actions ? "Requeue, pause and resume are on." : "Read-only.");
  const leases = (s.leases ?? []).map((l) => ({ kind: l.trouble ? "bad" : l.mine ? "good" : "",
    text: `Lease ${l.name}: ${l.mine ? "this process leads" : l.leader ? `${l.leader} leads` : "no leader is known"}${l.trouble ? `; ${l.trouble}` : ""}` }));
  sync($("leases"), leases, (n) => n.text, makeNote);
  empty("no-controllers", all.length ? "" : "This manager has no controllers. Add one with Manager.Add.");
  sync($("controllers"), all, (c) => c.name, makeController);
}

const failures = (c) => Object.values(c.failing ?? {}).reduce((n, of) => n + of, 0);
const rate = (n) => n > 0 && n < 10 ? n.toFixed(1) : count(Math.round(n));
const keysOf = (query) => "#/keys?" + new URLSearchParams(query);

function makeController(c) {
  const name = h("a", { href: keysOf({ controller: c.name }), text: c.name }), badges = h("span"), kinds = h("span", { class: "kinds mono" });
  const bar = h("div", { class: "bar", "aria-hidden": "true" }, ...STATES.map((s) => h("i", { "data-s": s })));
  const legend = h("ul", { class: "legend" }, ...STATES.map((s) => h("li", {}, h("a", { href: keysOf({ controller: c.name, state: s }), "data-s": s }))));
  const classes = h("p", { class: "small muted" }), busy = h("span", { class: "big" }), notes = h("ul", { class: "notes" });
  const speed = measured("Reconciles per second", ["rate"], rate), took = measured("Took: p50, p99", ["p50", "p99"], spent), asks = measured("API requests per second", ["asks"], rate);
  const asked = h("span", { class: "small muted" });
  asks.append(asked);
  const node = h("article", { class: "card controller", "aria-label": `Controller ${c.name}` },
    h("div", { class: "who-is" }, h("h4", {}, name, badges), kinds),
    h("div", { class: "queue" }, h("span", { class: "label", text: "Queue" }), bar, legend, classes),
    h("div", {}, h("span", { class: "label", text: "Workers busy" }), busy), speed, took, asks, notes);
  node.update = (c) => {
    const [text, kind] = c.paused ? ["paused", "warn"] : c.leading ? ["leads", "good"] : ["standby", ""];
    badges.className = `chip ${kind}`;
    put(badges, text);
    put(kinds, (c.kinds ?? []).join(", "));
    const of = { ...c, paused: c.pausedKeys }, total = STATES.reduce((n, s) => n + of[s], 0);
    STATES.forEach((s, i) => {
      bar.children[i].style.width = total ? `${100 * of[s] / total}%` : "0";
      const a = legend.children[i].firstChild;
      put(a, `${count(of[s])} ${SHOWN[s]}`);
      a.className = of[s] ? "" : "zero";
    });
    put(busy, `${count(c.running)} of ${count(c.workers)}`);
    const ready = Object.entries(c.classes ?? {}).map(([name, n]) => `${count(n)} ${name}`);
    put(classes, ready.length ? `ready by class: ${ready.join(", ")}` : "");
    put(asked, `${count(c.requests)} since the start`);
    for (const m of [speed, took, asks]) m.update(c);
    sync(notes, notesOf(c), (n) => n.text + n.at, makeNote);
  };
  return node;
}

// measured shows fields of a controller, and how they were in the last two minutes.
function measured(label, fields, text) {
  const svgs = (tag) => document.createElementNS("http://www.w3.org/2000/svg", tag), value = h("span", { class: "big" }), svg = svgs("svg");
  for (const [name, of] of Object.entries({ class: "spark", viewBox: "0 0 120 26", preserveAspectRatio: "none", "aria-hidden": "true" })) svg.setAttribute(name, of);
  svg.append(...fields.map(() => svgs("path")));
  const node = h("div", {}, h("span", { class: "label", text: label }), h("div", { class: "speed" }, value, svg));
  node.update = (c) => {
    const past = seen.past.get(c.name) ?? [], top = Math.max(fields.length > 1 ? 0.001 : 1, ...past.flatMap((p) => fields.map((f) => p[f] ?? 0)));
    put(value, c[fields[0]] === undefined ? "–" : fields.map((f) => text(c[f])).join(", "));
    fields.forEach((f, i) => svg.children[i].setAttribute("d", sparkline(past.map((p) => p[f]), top)));
  };
  return node;
}

// sparkline has a gap where a value is missing.
function sparkline(values, top) {
  return values.map((v, i) => v === undefined ? "" : `${values[i - 1] === undefined ? "M" : "L"}${(120 - (values.length - 1 - i) * 120 / (SAMPLES - 1)).toFixed(1)} ${(24.5 - 22 * v / top).toFixed(1)}`).join("");
}

function notesOf(c) {
  const notes = Object.entries(c.failing ?? {}).sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1))
    .map(([reason, n]) => ({ kind: "bad", text: `${count(n)} ${reason}`, href: keysOf({ controller: c.name, reason }) }));
  for (const waits of c.unsynced ?? []) notes.push({ kind: "warn", text: `waits for ${waits}` });
  if (c.stalled) notes.push({ kind: "bad", text: "no Reconcile began or returned for ", at: c.stalled });
  if (c.longest) notes.push({ kind: "", text: `longest Reconcile: ${c.longestKey}, for `, at: c.longest });
  return notes;
}

function makeNote(n) {
  return h("li", {}, h(n.href ? "a" : "span", { class: `chip ${n.kind}`, href: n.href }, n.text, n.at ? ago(n.at, "") : ""));
}

async function loadGroup(signal) {
  const [g] = await ask("shards/", signal);
  $("group").hidden = !g;
  if (!g) return;
  put($("group-name"), g.Group);
  const notes = [];
  if (g.Standby) notes.push({ kind: "warn", text: "this process is a standby: it holds no member's Lease" });
  if (g.Trouble) notes.push({ kind: "bad", text: g.Trouble });
  if (g.Moving) notes.push({ kind: "", text: `${plural(g.Moving, "slot")} about to move` });
  for (const u of (g.Unserved ?? []).slice(0, 20)) notes.push({ kind: "bad", text: `slots ${u.Slots} are unserved: ${u.Reason}; for `, at: u.Since });
  sync($("group-notes"), notes, (n) => n.text + n.at, makeNote);
  sync($("members"), (g.Members ?? []).slice(0, 200), (m) => JSON.stringify(m), (m) => h("tr", {},
    cell("Member", h("span", { class: "mono", text: m.Name + (m.Name === g.Member.split("@")[0] ? " (this process)" : "") })),
    cell("Identity", m.Identity), cell("Slots", count(m.Slots), "num"),
    cell("State", m.Silent ? h("span", { class: "chip bad" }, "silent for ", ago(m.Silent, "")) : m.Leaving ? chip("leaving", "warn") : chip("alive", "good"))));
}

const cell = (label, content, kind) => h("td", { "data-label": label, class: kind }, content instanceof Node ? content : h("span", { text: content }));
const chip = (text, kind = "") => h("span", { class: `chip ${kind}`, text });

// Keys

const list = { keys: [], active: 0, timer: 0 };

function options(id, values, chosen) {
  const all = values.some(([v]) => v === chosen) ? values : [...values, [chosen, chosen]];
  sync($(id), all, (v) => v[0], ([value, text]) => h("option", { value, text }));
  $(id).value = chosen;
}

function drawFilters(query) {
  const all = seen.summary?.controllers ?? [], reasons = new Set(all.flatMap((c) => Object.keys(c.failing ?? {})));
  options("controller", [["", "all"], ...all.map((c) => [c.name, c.name])], query.get("controller") ?? "");
  options("state", [["", "all"], ...Object.entries(SHOWN)], query.get("state") ?? "");
  options("reason", [["", "all keys"], ["any", "any failure"], ...[...reasons].sort().map((r) => [r, r])], query.get("reason") ?? "");
  options("sort", [["age", "age, oldest first"], ["attempts", "failures in a row"], ["duration", "duration"], ["reason", "failure"], ["key", "key"]], query.get("sort") || "age");
}

function filters() {
  const query = new URLSearchParams();
  for (const id of ["q", "controller", "state", "reason", "sort"]) {
    if ($(id).value && !(id === "sort" && $(id).value === "age")) query.set(id, $(id).value);
  }
  return query;
}

async function loadKeys(signal) {
  clearTimeout(list.timer);
  if (!list.keys.length) put($("keys-count"), "Loading the keys");
  const began = Date.now(), query = filters(), found = await ask("keys?" + query, signal);
  const active = list.keys[list.active];
  list.keys = found.keys;
  list.active = Math.max(0, active ? found.keys.findIndex((k) => k.key === active.key && k.controller === active.controller) : 0);
  const filtered = ["q", "controller", "state", "reason"].some((id) => query.has(id));
  put($("keys-count"), found.total > found.keys.length ? `The first ${count(found.keys.length)} of ${plural(found.total, "key")}. Search to see others.`
    : filtered ? `${plural(found.total, "key")} of ${count(found.all)}` : plural(found.total, "key"));
  empty("keys-empty", found.keys.length ? "" : found.all ? "No key matches. Clear the search or choose another filter."
    : "No keys: no key is queued or in progress, and none fails.");
  $("keys").hidden = !found.keys.length;
  drawRows();
  // A walk over a million keys takes two seconds: it must not be all that the server does.
  list.timer = setTimeout(() => view === "keys" && !document.hidden && load(), Math.max(5000, 20 * (Date.now() - began)));
}

function drawRows() {
  const box = $("rows"), height = matchMedia("(max-width: 720px)").matches ? 60 : 36;
  $("space").style.height = `${list.keys.length * height}px`;
  const first = Math.max(0, Math.floor(box.scrollTop / height) - 6), last = Math.min(list.keys.length, Math.ceil((box.scrollTop + box.clientHeight) / height) + 6);
  const rows = list.keys.slice(first, last).map((k, i) => ({ k, i: first + i }));
  sync($("space"), rows, ({ k }) => JSON.stringify(k), ({ k }) => {
    const failed = k.reason ? `${k.reason}: ${k.error}` : "";
    const since = k.at ?? k.since, node = h("a", { class: "row", role: "option", tabindex: -1, href: whyOf(k), title: failed || undefined },
      h("span", { class: "mono", text: k.key }), h("span", { class: "muted", text: k.controller }),
      h("span", { class: "state", "data-s": k.state, text: SHOWN[k.state] ?? k.state }), h("span", { class: "num", text: k.attempts || "" }),
      h("span", { class: "num muted", text: k.took ? spent(1000 * k.took) : "" }),
      failed ? h("span", {}, chip(k.reason, "bad"), " ", k.error) : k.due ? h("span", { class: "muted" }, "next ", ago(k.due, " overdue")) : h("span"),
      h("span", { class: "num muted" }, since ? ago(since, "") : ""));
    node.update = ({ i }) => {
      node.id = `row-${i}`;
      node.style.transform = `translateY(${i * height}px)`;
      node.setAttribute("aria-setsize", list.keys.length);
      node.setAttribute("aria-posinset", i + 1);
      node.setAttribute("aria-selected", i === list.active);
    };
    return node;
  });
  box.setAttribute("aria-activedescendant", `row-${list.active}`);
}

// whyOf guesses that the key is a name of the first kind that the controller watches. Else the key
// itself is explained.
function whyOf(k) {
  const kinds = seen.summary?.controllers.find((c) => c.name === k.controller)?.kinds ?? [], slash = k.key.indexOf("/");
  return "#/why?" + new URLSearchParams({ kind: kinds[0] ?? "", namespace: k.key.slice(0, Math.max(0, slash)), name: k.key.slice(slash + 1), controller: k.controller, key: k.key });
}

function move(event) {
  const page = Math.max(1, Math.floor($("rows").clientHeight / 60)), height = $("space").offsetHeight / Math.max(1, list.keys.length);
  const by = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity }[event.key];
  if (event.key === "Enter") return void (location.hash = whyOf(list.keys[list.active]));
  if (by === undefined || !list.keys.length) return;
  event.preventDefault();
  list.active = Math.min(list.keys.length - 1, Math.max(0, list.active + by));
  const top = list.active * height, box = $("rows");
  box.scrollTop = Math.min(top, Math.max(box.scrollTop, top + height - box.clientHeight));
  drawRows();
}

// Why

function drawKinds() {
  const kinds = [...new Set((seen.summary?.controllers ?? []).flatMap((c) => c.kinds ?? []))].sort();
  sync($("kinds"), kinds, (k) => k, (k) => h("option", { value: k }));
}

async function loadWhy(signal, query) {
  for (const [id, name] of [["kind", "kind"], ["namespace", "namespace"], ["object", "name"]]) $(id).value = query.get(name) ?? "";
  $("answers").replaceChildren();
  put($("asked"), "");
  const of = { controller: query.get("controller"), key: query.get("key") }, asks = query.get("kind") && query.get("name");
  if (!asks && !of.key) {
    return void empty("no-answer", query.get("name") ? "Enter the kind of the object." : "Enter the kind, namespace and name of an object to learn why it is reconciled or not.");
  }
  empty("no-answer", "");
  let found = asks ? await ask("why?" + new URLSearchParams({ kind: query.get("kind"), namespace: query.get("namespace") ?? "", name: query.get("name") }), signal) : { answers: [] };
  if (of.key && !found.answers.some((a) => a.controller === of.controller && a.key === of.key)) found = await ask("why?" + new URLSearchParams(of), signal);
  $("asked").replaceChildren("Asked at ", clock(now()), ". Ask again for a newer answer.");
  $("answers").replaceChildren(...found.answers.map(answer));
}

// actions are the buttons for a key, if the server allows them.
function actions(of, paused) {
  if (!seen.summary?.actions || !of.controller || !of.key) return null;
  return h("div", { class: "actions" }, ...["requeue", paused ? "resume" : "pause"].map((action) => {
    const button = h("button", { type: "button", "aria-label": `${action} ${of.key}`, text: action[0].toUpperCase() + action.slice(1) });
    button.addEventListener("click", () => act(action, of, [...document.querySelectorAll("#answers button")].indexOf(button)));
    return button;
  }));
}

// act asks for an action and shows the result. The focus returns to the button's place.
async function act(action, { controller, key }, place) {
  const acted = $("acted"), at = location.hash;
  try {
    const { result } = await ask(action, undefined, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ controller, key }) });
    acted.className = "acted";
    put(acted, result);
  } catch (err) {
    acted.className = "acted bad";
    put(acted, err instanceof TypeError ? "The server does not answer." : err.message);
  }
  if (location.hash !== at) return;
  await load();
  document.querySelectorAll("#answers button")[place]?.focus();
}

const CALM = { Done: "good", Running: "good", Queued: "", Scheduled: "", Dropped: "", Unmapped: "", OutsideScope: "" };
const RUN = /^Reconcile until (\S+), for ([^:]+): ([^,]+), ([\s\S]*?)(?:; because of ([\s\S]*))?$/;

function answer(a) {
  const runs = [], facts = [];
  for (const e of a.evidence ?? []) {
    const run = RUN.exec(e);
    if (run) runs.push(run);
    else facts.push(e);
  }
  runs.sort((a, b) => Date.parse(b[1]) - Date.parse(a[1])); // newest first
  return h("article", { class: "card answer" },
    h("h4", {}, chip(a.reason, CALM[a.reason] ?? "bad"), h("span", { class: "mono", text: [a.controller, a.key].filter(Boolean).join(" ") }),
      a.since ? h("span", { class: "muted" }, "for ", ago(a.since, "")) : null, actions(a, a.reason === "Paused")),
    h("p", { class: "cause", text: a.cause }),
    a.remedy ? h("p", { class: "remedy" }, h("b", { text: "Remedy" }), a.remedy) : null,
    runs.length ? h("h5", { text: runs.length === 1 ? "Last Reconcile" : `Last ${runs.length} Reconciles, newest first` }) : null,
    runs.length ? h("ol", { class: "line" }, ...runs.map(past)) : null,
    facts.length ? h("h5", { text: "Evidence" }) : null,
    facts.length ? h("ul", { class: "evidence mono" }, ...facts.map((text) => h("li", { text }))) : null);
}

function past([, at, took, outcome, effect, because]) {
  const bad = !/success|succeeded|requeue|stale|interrupted/i.test(outcome);
  return h("li", { class: bad ? "bad" : undefined },
    h("div", { class: "what" }, h("strong", { text: outcome.replaceAll("_", " ") }), h("span", { class: "muted" }, ago(at), ` at ${clock(Date.parse(at))}, took ${took}`)),
    h("div", { text: effect }), because ? h("div", { class: "muted small", text: `because of ${because}` }) : null);
}

// Informers

async function loadInformers(signal) {
  const all = await ask("informers/", signal), bytes = (n) => n >= 1e9 ? `${(n / 1e9).toFixed(1)} GB` : n >= 1e6 ? `${(n / 1e6).toFixed(1)} MB` : n >= 1e3 ? `${(n / 1e3).toFixed(1)} kB` : `${n} B`;
  const calm = (i) => i.Phase === "synced" && !i.Err && !i.BrokenCount;
  all.sort((a, b) => calm(a) - calm(b));
  put($("informers-count"), all.length ? `${plural(all.length, "informer")}, ${plural(all.reduce((n, i) => n + i.Objects, 0), "object")}, counted at ${clock(now())}` : "");
  empty("no-informers", all.length ? "" : "No informers: no cache of this manager keeps a kind. A controller with a source has one.");
  $("informers-table").hidden = !all.length;
  $("informers").replaceChildren(...all.slice(0, 1000).map((i) => h("tr", {},
    cell("Kind", h("span", {}, h("span", { class: "mono", text: i.Kind }), i.Err ? h("span", { class: "error", text: i.Err }) : null,
      i.BrokenCount ? h("span", { class: "error", text: `${plural(i.BrokenCount, "broken object")}, such as ${i.Broken[0]}` }) : null)),
    cell("Scope", [i.Scope || "all objects", i.Slots].filter(Boolean).join("; ")),
    cell("Phase", chip(i.Phase, i.Phase === "synced" ? "good" : i.Phase === "failing" ? "bad" : "warn")),
    cell("Objects", count(i.Objects), "num"), cell("Bytes", i.Bytes ? bytes(i.Bytes) : "–", "num"), cell("Storage", i.Storage || "–"),
    cell("Since", i.Since.startsWith("0001") ? "–" : ago(i.Since, "")))));
}

// Views

let view = "", loading = new AbortController();
const views = {
  overview: { draw: drawOverview, load: loadGroup }, keys: { draw: () => drawFilters(filters()), load: loadKeys },
  why: { draw: drawKinds, load: loadWhy }, informers: { load: loadInformers },
};

async function ask(path, signal, how) {
  const answer = await fetch(path, { signal, credentials: "same-origin", ...how });
  if (!answer.ok) throw new Error((await answer.text()).trim());
  return answer.json();
}

function route() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  return [views[path] ? path : "overview", new URLSearchParams(query)];
}

// load asks the server again for the view. A newer call ends it.
async function load() {
  loading.abort();
  const mine = loading = new AbortController();
  const of = { overview: "no-controllers", keys: "keys-empty", why: "no-answer", informers: "no-informers" }[view];
  try {
    await views[view].load(mine.signal, route()[1]);
  } catch (err) {
    if (!mine.signal.aborted && view !== "overview") empty(of, err instanceof TypeError ? "The server does not answer." : err.message);
  }
}

// refresh loads what changes by itself. Another load would clear what is typed in the form of why.
function refresh() {
  if (view !== "why") load();
}

function show() {
  const [name, query] = route(), moved = view && view !== name;
  view = name;
  for (const n of Object.keys(views)) $(`view-${n}`).hidden = n !== name;
  for (const a of document.querySelectorAll("nav a")) {
    if (a.hash === (name === "overview" ? "#/" : `#/${name}`)) a.setAttribute("aria-current", "page");
    else a.removeAttribute("aria-current");
  }
  if (name === "keys") {
    $("q").value = query.get("q") ?? "";
    drawFilters(query);
  }
  put($("acted"), "");
  title();
  views[name].draw?.();
  load();
  if (moved) {
    scrollTo(0, 0);
    $(`view-${name}`).querySelector("h2").focus({ preventScroll: true });
  }
}

function title() {
  document.title = `${view[0].toUpperCase()}${view.slice(1)} · ${seen.summary?.name || "Setpoint"}`;
}

// The stream

const link = { control: null, retry: null, since: 0, heard: 0, why: "", next: 0 };

function take(text) {
  const of = (name) => text.match(new RegExp(`^${name}: ?(.*)$`, "m"))?.[1] ?? "";
  link.heard = Date.now();
  seen.skew = Number(of("id")) - Date.now() || 0;
  if (Math.abs(seen.skew) < 2000) seen.skew = 0;
  if (of("event") !== "summary") return;
  const first = !seen.summary;
  seen.summary = JSON.parse(of("data"));
  put($("name"), seen.summary.name || "Setpoint");
  put($("identity"), seen.summary.identity);
  title();
  views[view].draw?.();
  if (first && (view === "keys" || view === "why" && seen.summary.actions)) load(); // links need the kinds, and buttons the permission
}

// sample keeps the numbers of each second, also while nothing changes.
function sample() {
  const kept = new Map();
  for (const c of seen.summary?.controllers ?? []) {
    kept.set(c.name, [...(seen.past.get(c.name) ?? []), c].slice(-SAMPLES));
  }
  seen.past = kept;
}

async function listen(signal) {
  const answer = await fetch("stream", { signal, credentials: "same-origin", cache: "no-store" });
  if (!answer.ok) throw new Error((await answer.text()).trim());
  const back = link.since > 0;
  status("");
  if (back) refresh();
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let buffer = "", heard = false; ;) {
    const { value, done } = await reader.read();
    if (done) return heard;
    buffer += value;
    const events = buffer.split("\n\n");
    buffer = events.pop();
    if (buffer.length > 4e6) throw new Error("An event is too long.");
    for (const event of events) take(event);
    heard ||= events.length > 0;
  }
}

// follow connects again, at first at once and then ever later. It waits while the tab is hidden.
async function follow() {
  for (let wait = 0; ;) {
    if (document.hidden) await new Promise((resolve) => document.addEventListener("visibilitychange", resolve, { once: true }));
    if (document.hidden) continue;
    link.control = new AbortController();
    link.heard = Date.now();
    let why = "";
    try {
      if (await listen(link.control.signal)) wait = 0;
    } catch (err) {
      if (link.since === 0 && link.heard) wait = 0;
      why = err instanceof TypeError || err.name === "AbortError" ? "The server does not answer." : err.message;
    }
    if (document.hidden) { // ended by us
      wait = 0;
      continue;
    }
    if (wait || why) status(why || "The server ended the connection.");
    wait = Math.min(30, wait ? 2 * wait : 0.5);
    link.next = Date.now() + wait * 1000;
    await new Promise((resolve) => {
      link.retry = resolve;
      setTimeout(resolve, wait * 1000);
    });
  }
}

// status shows the connection: why it is lost, or "" if it is live.
function status(why) {
  if (why && !link.since) link.since = Date.now();
  else if (!why) link.since = 0;
  link.why = why;
  $("lost").hidden = !why;
  $("status").dataset.is = why ? "lost" : "live";
  put($("status").lastElementChild, why ? "offline" : "live");
  if (why) {
    put($("lost-since"), clock(link.since));
    put($("lost-why"), why);
  }
}

function everySecond() {
  if (document.hidden) return;
  document.querySelectorAll("main section:not([hidden]) [data-at]").forEach(tick);
  sample();
  if (view === "overview") drawOverview();
  if (Date.now() - link.heard > 40e3 && !link.since) link.control?.abort(); // the server sends something every 15 s
}

function start() {
  addEventListener("hashchange", show);
  document.addEventListener("visibilitychange", () => document.hidden ? link.control?.abort() : refresh());
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select, textarea")) return;
    event.preventDefault();
    if (view !== "keys") location.hash = "#/keys";
    setTimeout(() => $("q").focus(), 0); // after the view is shown
  });
  let typed = 0;
  const search = () => {
    history.replaceState(null, "", "#/keys?" + filters());
    $("rows").scrollTop = 0;
    load();
  };
  $("find").addEventListener("input", (event) => {
    clearTimeout(typed);
    typed = setTimeout(search, event.target === $("q") ? 200 : 0);
  });
  $("find").addEventListener("submit", (event) => event.preventDefault());
  $("rows").addEventListener("scroll", () => requestAnimationFrame(drawRows), { passive: true });
  $("rows").addEventListener("keydown", move);
  addEventListener("resize", () => view === "keys" && drawRows());
  $("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    const hash = "#/why?" + new URLSearchParams({ kind: $("kind").value.trim(), namespace: $("namespace").value.trim(), name: $("object").value.trim() });
    if (location.hash === hash) load();
    else location.hash = hash;
  });
  $("reload").addEventListener("click", load);
  $("retry").addEventListener("click", () => link.retry?.());
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault(); // a hash is a route
    $("main").focus();
  });
  setInterval(everySecond, 1000);
  setInterval(() => view === "overview" && !document.hidden && load(), 10e3); // members
  show();
  follow();
}

start();

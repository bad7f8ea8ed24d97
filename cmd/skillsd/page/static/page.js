// What the page does beyond its HTML: times in the viewer's zone, copying of commands, the key of the link, and
// a fresh copy of a part of the page when the server says that it changed. No text becomes markup here.
"use strict";

// Times: the exact one stays in the title.
function localize(root) {
  const today = new Date().toDateString();
  for (const el of root.querySelectorAll("time[datetime]")) {
    const at = new Date(el.dateTime);
    if (Number.isNaN(at.getTime())) continue;
    const clock = at.toLocaleTimeString([], { hour12: false });
    el.textContent = at.toDateString() === today ? clock
      : at.toLocaleDateString([], { day: "2-digit", month: "short" }) + " " + clock;
  }
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button[data-copy]");
  if (!button) return;
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Select it";
  }
});

// The key of the link is behind "#", which no browser sends; the form sends it once.
const login = document.getElementById("login");
if (login && location.hash.length > 1) {
  document.getElementById("token").value = location.hash.slice(1);
  history.replaceState(null, "", "/login");
  login.submit();
}

// A document that an XMLHttpRequest parsed runs no script; its nodes take the place of those here.
function refresh() {
  return new Promise((resolve) => {
    const request = new XMLHttpRequest();
    request.open("GET", location.href);
    request.responseType = "document";
    request.onload = () => {
      const next = request.status === 200 && request.response && request.response.getElementById("live");
      const now = document.getElementById("live");
      if (next && now) {
        for (const el of now.querySelectorAll("details[id][open]")) {
          const same = request.response.getElementById(el.id);
          if (same) same.open = true;
        }
        const focus = document.activeElement && now.contains(document.activeElement)
          ? document.activeElement.getAttribute("href") : null;
        const node = document.adoptNode(next);
        localize(node);
        now.replaceWith(node);
        if (focus) {
          const again = [...node.querySelectorAll("a[href]")].find((a) => a.getAttribute("href") === focus);
          if (again) again.focus({ preventScroll: true });
        }
      }
      resolve();
    };
    request.onerror = resolve;
    request.send();
  });
}

function follow() {
  const live = document.getElementById("live");
  if (!live) return;
  const state = document.getElementById("state");
  const source = new EventSource(live.dataset.live);
  let seen = live.dataset.state, busy = false, again = false;
  const editing = () => document.activeElement && document.activeElement.closest("#filters input, #filters select");
  const update = async () => {
    if (busy || editing()) { again = true; return; }
    busy = true;
    do { again = false; await refresh(); } while (again);
    busy = false;
  };
  source.addEventListener("state", (event) => {
    state.textContent = "live";
    if (seen !== event.data) update();
    seen = event.data;
  });
  document.addEventListener("focusout", () => { if (again && !busy) setTimeout(update, 0); });
  source.onerror = () => {
    state.textContent = source.readyState === EventSource.CLOSED ? "not live: reload this page"
      : "not live: skillsd does not answer";
  };
  addEventListener("pagehide", () => source.close());
}

localize(document);
follow();

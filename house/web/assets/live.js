// Keeps a page fresh: fetches it every few seconds, and exchanges those of its sections that changed.
// Without this script a page shows the state of its loading.
const PAUSE = 3000;
const warning = document.getElementById("connection");
const shown = new Map();

function exchange(text) {
  const fresh = new DOMParser().parseFromString(text, "text/html");
  for (const section of fresh.querySelectorAll("[data-live]")) {
    const old = document.getElementById(section.id);
    const html = section.outerHTML;
    if (!old || shown.get(section.id) === html) continue;
    // a person who types or tabs in a section keeps it until the focus leaves
    if (old.contains(document.activeElement)) continue;
    for (const details of old.querySelectorAll("details[open]")) {
      const twin = section.querySelector("#" + CSS.escape(details.id));
      if (twin) twin.open = true;
    }
    old.replaceWith(document.adoptNode(section));
    shown.set(section.id, html);
  }
}

async function refresh() {
  try {
    const here = location.pathname + location.search;
    const answer = await fetch(here, { cache: "no-store", redirect: "error", headers: { "x-live": "1" } });
    if (answer.status === 401) {
      location.assign("/login");
      return;
    }
    if (!answer.ok) throw new Error(answer.statusText);
    exchange(await answer.text());
    warning.hidden = true;
  } catch {
    warning.hidden = false;
  }
}

async function run() {
  for (;;) {
    await new Promise((done) => setTimeout(done, PAUSE));
    if (!document.hidden) await refresh();
  }
}

if (document.querySelector("[data-live]")) run();

// the time slider opens the moment that it is moved to; the links below it do the same without this script
const slider = document.querySelector("[data-slider]");
if (slider) {
  const moments = [...document.querySelectorAll(".moments a")];
  slider.addEventListener("input", () => slider.setAttribute("aria-valuetext", moments[slider.value].title));
  slider.addEventListener("change", () => location.assign(moments[slider.value].href));
}

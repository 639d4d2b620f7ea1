"use strict";

// A ticket comes in the part of the address that browsers do not send, and goes out of the address at once.
const enter = document.getElementById("enter");
const ticket = enter && new URLSearchParams(location.hash.slice(1)).get("ticket");
if (ticket) {
  history.replaceState(null, "", location.pathname);
  enter.elements.ticket.value = ticket;
  enter.submit();
}

// A page that lives is fetched again when the server says that it has changed, and its parts are put in place of the
// old ones. The server renders everything; without this script the page reloads itself.
const live = document.body.dataset.live;
if (live && window.EventSource) {
  const status = document.getElementById("live");
  let source, timer, busy = false, again = false;

  const put = (next) => {
    for (const old of document.querySelectorAll("[data-part]")) {
      const now = next.querySelector(`[data-part="${old.dataset.part}"]`);
      if (!now) return location.reload(); // it is of another version of Sluice
      if (now.innerHTML === old.innerHTML || old.querySelector("form:focus-within")) continue;
      const open = [...old.querySelectorAll("details")].map((d) => d.open);
      const links = [...old.querySelectorAll("a, button, [tabindex]")];
      const focus = links.indexOf(document.activeElement);
      old.replaceWith(now);
      now.querySelectorAll("details").forEach((d, i) => { d.open = open[i] ?? d.open; });
      if (focus >= 0) now.querySelectorAll("a, button, [tabindex]")[focus]?.focus();
    }
  };
  // A browser does not open a stream again that was answered with an error. The page is fetched too, because its answer
  // shows that the session has ended.
  const fail = () => {
    status.textContent = "not connected; trying again";
    source.close();
    clearTimeout(timer);
    timer = setTimeout(() => { connect(); refresh(); }, 5000);
  };
  const connect = () => {
    source = new EventSource(live);
    source.addEventListener("open", () => { status.textContent = "live"; });
    source.addEventListener("error", fail);
    source.addEventListener("change", refresh);
  };
  const refresh = async () => {
    if (busy) { again = true; return; }
    busy = true;
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
      if (answer.status >= 500) throw new Error(answer.statusText);
      if (!answer.ok || answer.redirected) { source.close(); location.reload(); return; }
      put(new DOMParser().parseFromString(await answer.text(), "text/html"));
    } catch {
      fail();
    }
    busy = false;
    if (again) { again = false; refresh(); }
  };
  connect();
}

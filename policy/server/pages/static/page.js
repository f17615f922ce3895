// Times in the reader's zone, which each of them names, with UTC on hover. Without JavaScript they are
// UTC, as they or the heads say.
function local(at) {
  const instant = new Date(at);
  return Number.isNaN(instant.getTime()) ? "" : instant.toLocaleString([], { timeZoneName: "short" });
}
function localize(root) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    time.textContent = local(time.dateTime) || time.textContent;
  }
  for (const bar of root.querySelectorAll("a[data-at]")) {
    bar.title = `${local(bar.dataset.at)}: ${bar.dataset.count}`;
    bar.querySelector("svg").setAttribute("aria-label", bar.title);
  }
  for (const head of root.querySelectorAll("th")) {
    // Others may hold links, which a new text would take away.
    if (head.textContent.endsWith(" (UTC)")) head.textContent = head.textContent.replace(" (UTC)", "");
  }
}
// The fields stay where only their list is swapped: the message says which of them was refused.
function marked() {
  const refused = document.getElementById("refused");
  for (const field of document.querySelectorAll("form.filter [name]")) {
    if (refused && refused.dataset.field === field.name) {
      field.setAttribute("aria-invalid", "true");
      field.setAttribute("aria-describedby", "refused");
    } else {
      field.removeAttribute("aria-invalid");
      field.removeAttribute("aria-describedby");
    }
  }
}
localize(document);
document.addEventListener("htmx:afterSwap", (event) => {
  localize(event.target.parentElement || document);
  marked();
});

// Pages that earlier versions kept in the browser, where they would outlast the session.
try {
  localStorage.removeItem("htmx-history-cache");
} catch {
  // A browser that keeps nothing for this site kept no pages either.
}

// What does not come leaves what is shown as it was: that is said beside it, until something comes.
const unanswered = document.createElement("p");
unanswered.className = "warning";
unanswered.setAttribute("role", "alert");
function sayUnanswered(event, words) {
  unanswered.textContent = `${words} What is listed here is from before. Try again.`;
  event.detail.target.before(unanswered);
}
document.addEventListener("htmx:sendError", (event) => sayUnanswered(event, "The service did not answer."));
document.addEventListener("htmx:timeout", (event) => sayUnanswered(event, `The service did not answer within ${htmx.config.timeout / 1000} seconds.`));
document.addEventListener("htmx:beforeSwap", (event) => {
  const { xhr } = event.detail;
  // Every page says where it belongs; what has no such header is of something before the pages.
  event.detail.shouldSwap = ["HX-Push-Url", "HX-Retarget"].some((name) => xhr.getResponseHeader(name));
  if (event.detail.shouldSwap) unanswered.remove();
  else sayUnanswered(event, `The answer has status ${xhr.status} and is no page.`);
});

// Times in the reader's zone, with UTC on hover. Without JavaScript they are UTC, as they or the heads say.
function local(root) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    const at = new Date(time.dateTime);
    if (!Number.isNaN(at.getTime())) time.textContent = at.toLocaleString();
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
local(document);
document.addEventListener("htmx:afterSwap", (event) => {
  local(event.target.parentElement || document);
  marked();
});

/** Explanations: read by screen readers as descriptions, shown to all others on hover, focus or touch. */
import { h } from "./dom.ts";

let count = 0;

/** Give a control its explanation. */
export function explain<Part extends HTMLElement>(element: Part, tip: string, target: HTMLElement = element): Part {
  const note = h("span", { id: `tip${++count}`, class: "hidden" }, tip);
  element.append(note);
  target.setAttribute("aria-describedby", note.id);
  element.dataset.tip = tip;
  return element;
}

/** Show explanations of everything inside a root; Escape hides them. */
export function showTips(root: HTMLElement): void {
  const bubble = h("div", { class: "tip", "aria-hidden": "true", hidden: true });
  root.append(bubble);
  const show = (event: Event): void => {
    const target = (event.target as Element).closest?.<HTMLElement>("[data-tip]");
    if (!target) return hide();
    bubble.textContent = target.dataset.tip ?? "";
    bubble.hidden = false;
    const place = target.getBoundingClientRect();
    const width = Math.min(bubble.offsetWidth, innerWidth - 16);
    bubble.style.left = `${Math.max(8, Math.min(place.left, innerWidth - width - 8))}px`;
    const below = place.bottom + 6 + bubble.offsetHeight < innerHeight;
    bubble.style.top = `${below ? place.bottom + 6 : Math.max(4, place.top - bubble.offsetHeight - 6)}px`;
  };
  const hide = (): void => {
    bubble.hidden = true;
  };
  root.addEventListener("pointerover", show);
  root.addEventListener("focusin", (event) => {
    if ((event.target as Element).matches(":focus-visible")) show(event);
  });
  root.addEventListener("focusout", hide);
  addEventListener("scroll", hide, { passive: true });
  root.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hide();
  });
}

/** The numbers of a class as a table, for those who read rather than look. */
import { h } from "./dom.ts";
import type { Scene } from "./scene.ts";

export function numbersTable({ rows, focus, classes, frame }: Scene): HTMLTableElement {
  const { index, rows: tokens } = rows[focus];
  const heads = ["token", "kind", "P(l|n)", "attention"].map((words) => h("th", { scope: "col" }, words));
  const lines = tokens.map(({ name, kind, prob, token }) => {
    const numbers = [prob, frame.attention[index * classes.tokens.length + token]];
    const cells = [kind, ...numbers.map((number) => said(number, number.toFixed(4)))].map((words) => h("td", {}, words));
    return h("tr", {}, h("th", { scope: "row" }, name), ...cells);
  });
  const loss = said(frame.loss, `${frame.loss.toPrecision(6)} nats`);
  const caption = `Class ${index + 1} at step ${frame.step}; loss ${loss}`;
  return h("table", {}, h("caption", {}, caption), h("thead", {}, h("tr", {}, ...heads)), h("tbody", {}, ...lines));
}

/** The words for a number, if it is one: a run that diverged has none. */
function said(number: number, words: string): string {
  return Number.isFinite(number) ? words : "no number";
}

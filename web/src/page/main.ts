import { App } from "./app.ts";
import { h } from "./dom.ts";
import style from "./style.css";

document.head.append(h("style", {}, style));
const root = h("div", { id: "explorer" });
document.body.append(root);
new App(root);

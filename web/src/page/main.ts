import { presets } from "../engine/index.ts";

document.body.append(Object.keys(presets()).join(", "));

import { render } from "preact";
import { App } from "./app";
import { listenToKeys } from "./state/keys";
import { listenToHash } from "./state/router";
import { followTheme } from "./state/theme";

followTheme();
listenToHash();
listenToKeys();
render(<App />, document.getElementById("app")!);

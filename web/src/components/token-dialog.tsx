import { useEffect, useRef } from "preact/hooks";
import { useToken } from "../state/connection";

/** Asks for a token; the page asks again with it. */
export function TokenDialog() {
  const dialog = useRef<HTMLDialogElement>(null);
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => dialog.current?.showModal(), []);
  const submit = (event: Event): void => {
    event.preventDefault();
    useToken(input.current?.value ?? "");
  };
  return (
    <dialog ref={dialog} aria-labelledby="token-title">
      <form onSubmit={submit} class="stack">
        <h2 id="token-title">This server requires a token</h2>
        <p class="soft">
          An admin creates tokens in Settings, or with <code>slicemill token add NAME --home DIR</code>. This page
          stores the token until the tab is closed.
        </p>
        <label class="field">
          Token
          <input ref={input} type="password" autocomplete="off" required />
        </label>
        <button class="main">Continue</button>
      </form>
    </dialog>
  );
}

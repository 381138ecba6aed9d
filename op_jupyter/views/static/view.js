// The view of one turn: header, answer, plan, calls, graph and card.
import { visible } from "./text.js";
import { TurnFold } from "./fold.js";

function render({ model, el }) {
  const root = document.createElement("section");
  root.className = "op-turn";
  el.append(root);
  const fold = new TurnFold();
  const paint = () => {
    const { status, phase, draft, answer, permission } = fold.state;
    root.textContent = visible(`${status} · ${phase}\n${answer || draft}`);
    if (permission) {
      for (const word of ["allow", "deny"]) {
        const button = document.createElement("button");
        button.textContent = word;
        button.className = `op-${word}`;
        button.addEventListener("click", () =>
          model.send({ kind: "decide", id: permission.id, answer: word }),
        );
        root.append(button);
      }
    }
  };
  const receive = (message) => {
    if (message.kind === "snapshot") fold.load(message.state);
    if (message.kind === "updates") for (const item of message.items) fold.apply(item);
    paint();
  };
  model.on("msg:custom", receive);
  model.send({ kind: "ready" });
  paint();
  return () => model.off("msg:custom", receive);
}

export default { render };

// A widget's outputs in the notebook around it. Of the front ends only JupyterLab and Notebook let a
// widget find its notebook.

const WIDGET_VIEW = "application/vnd.jupyter.widget-view+json";

const cellsOf = (model) => model.widget_manager?.context?.model?.cells;

function* places(cells, id) {
  for (const cell of cells) {
    const outputs = cell?.outputs; // none in a text
    for (let at = 0; at < (outputs?.length ?? 0); at += 1)
      if (outputs.get(at).data[WIDGET_VIEW]?.model_id === id) yield [outputs, at];
  }
}

// What stays takes the view's place in the notebook itself. A page that was loaded again no longer
// knows which output belongs to which display, so the kernel's own update does not reach it.
export function leaveNotebook(model, { model_id: id, data, metadata }) {
  for (const [outputs, at] of places(cellsOf(model) ?? [], id))
    outputs.set(at, { output_type: "display_data", data, metadata });
}

// Whether the notebook has no output any more that shows the widget with that id; false where that
// cannot be told, and when the whole notebook is closed.
export function isCleared(model, id) {
  const cells = cellsOf(model);
  return Boolean(cells && id) && places(cells, id).next().done;
}

// What stays takes the view's place in the notebook itself. A page that was loaded again no longer
// knows which output belongs to which display, so the kernel's own update does not reach it.

const WIDGET_VIEW = "application/vnd.jupyter.widget-view+json";

export function leaveNotebook(model, { model_id: id, data, metadata }) {
  // Of the front ends only JupyterLab and Notebook let a widget find its notebook.
  for (const { outputs } of model.widget_manager?.context?.model?.cells ?? []) {
    for (let at = 0; at < (outputs?.length ?? 0); at += 1) {
      if (outputs.get(at).data[WIDGET_VIEW]?.model_id === id)
        outputs.set(at, { output_type: "display_data", data, metadata });
    }
  }
}

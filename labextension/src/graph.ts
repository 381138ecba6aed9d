/** The graph of a saved turn: the live view's own list and details, without what needs a kernel. */

import { DetailsPanel } from '../../op_jupyter/views/static/details.js';
import { h } from '../../op_jupyter/views/static/dom.js';
import { GraphView } from '../../op_jupyter/views/static/graph.js';

import type { GraphNode } from './turn';

class SavedDetails extends DetailsPanel {
  constructor(graph: GraphView) {
    super(graph, { ask: null, act: null });
  }

  /** No buttons: a saved node has no id that means something elsewhere, and no kernel to act. */
  override buttons(): never[] {
    return [];
  }
}

export function savedGraph(nodes: GraphNode[]): HTMLElement {
  const graph = new GraphView((row: unknown, node: unknown) => details.look(row, node));
  const details: SavedDetails = new SavedDetails(graph);
  graph.followButton.remove(); // nothing grows
  graph.title.parentElement?.replaceChildren(); // it would repeat the line above; its place is kept
  graph.update(nodes, null);
  graph.select(0);
  return h('div', { class: 'opv-dag' }, graph.element, details.element);
}

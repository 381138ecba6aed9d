/** Resume a session in a notebook: by a cell that stays there, so that the notebook tells what ran. */

import type { OpenNotebook } from './notebooks';

interface CellList {
  insertCell(index: number, cell: { cell_type: 'code'; source: string }): unknown;
  readonly cells: readonly unknown[];
}

const SAFE_ID = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/;

/** Insert the cell below the active one and select it.
 *
 * @throws Error: the id is none that could be written into a cell.
 */
export function insertResume(notebook: OpenNotebook, id: string): void {
  if (!SAFE_ID.test(id)) {
    throw new Error('This is no id of a session.');
  }
  const load = notebook.link.isLoaded ? '' : '%load_ext openprogram\n';
  const { content } = notebook.panel;
  const cells = notebook.context.model.sharedModel as unknown as CellList;
  const index = Math.min(content.activeCellIndex + 1, cells.cells.length);
  cells.insertCell(index, { cell_type: 'code', source: `${load}%agent resume ${id}` });
  content.activeCellIndex = index;
  content.deselectAll(); // what is run is all that is selected
}

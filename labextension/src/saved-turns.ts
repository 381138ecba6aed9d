/** The plugin that draws saved agent turns, with no kernel needed. */

import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { IRenderMimeRegistry } from '@jupyterlab/rendermime';

import { SavedTurn } from './saved-turn';
import { MIME_TYPE } from './turn';

export const savedTurns: JupyterFrontEndPlugin<void> = {
  id: 'op-jupyter-labextension:saved-turns',
  description: 'Draws saved agent turns.',
  autoStart: true,
  requires: [IRenderMimeRegistry],
  activate: (_app: JupyterFrontEnd, rendermime: IRenderMimeRegistry) => {
    rendermime.addFactory(
      {
        safe: true, // shows text and shapes only, so an untrusted notebook may use it
        mimeTypes: [MIME_TYPE],
        createRenderer: options => new SavedTurn(options)
      },
      0 // before text/html, which is the same turn for front ends without this extension
    );
  }
};

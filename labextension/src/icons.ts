/** Icons that JupyterLab draws itself: of the sidebar, of tabs, of settings. */

import { LabIcon } from '@jupyterlab/ui-components';

// A graph of three nodes, on the 16 px grid of the views.
const SVG = `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 16 16">
<g class="jp-icon3" stroke="#616161" stroke-width="1.5" fill="none" stroke-linecap="round">
<circle cx="3.5" cy="8" r="1.7"/><circle cx="12" cy="3.5" r="1.7"/><circle cx="12" cy="12.5" r="1.7"/>
<path d="M5 7.2l5.5-3M5 8.8l5.5 3"/></g></svg>`;

export const sessionsIcon = new LabIcon({
  name: 'op-jupyter:sessions',
  svgstr: SVG.replace('class="jp-icon3" stroke="#616161"', 'class="op-icon" stroke="currentColor"')
});

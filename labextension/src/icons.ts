/** Icons on a 16 px grid, 1.5 px stroke, in the colour of the text around them. */

import { svg } from './dom';

type Shape = ['path', { d: string }] | ['circle', Circle] | ['rect', Rect];
type Circle = { cx: number; cy: number; r: number };
type Rect = { x: number; y: number; width: number; height: number; rx: number };

const path = (d: string): Shape => ['path', { d }];
const circle = (cx: number, cy: number, r: number): Shape => ['circle', { cx, cy, r }];
const square = (x: number, y: number, size: number): Shape => [
  'rect',
  { x, y, width: size, height: size, rx: 1 }
];

const ICONS: Record<string, Shape[]> = {
  user: [circle(8, 5.5, 2.5), path('M3 13.5c.6-2.7 2.5-4 5-4s4.4 1.3 5 4')],
  model: [
    square(4.5, 4.5, 7),
    path(
      'M6.5 2v2.5M9.5 2v2.5M6.5 11.5V14M9.5 11.5V14M2 6.5h2.5M2 9.5h2.5M11.5 6.5H14M11.5 9.5H14'
    )
  ],
  function: [
    path(
      'M6 2.500c-1.500 0-2 .6-2 2v1.700c0 .9-.5 1.500-1.500 1.800 1 .3 1.500.9 1.500 1.800v1.700c0 1.400.5 2 2 2' +
        'M10 2.500c1.500 0 2 .6 2 2v1.700c0 .9.5 1.500 1.500 1.800-1 .3-1.500.9-1.500 1.800v1.700c0 1.400-.5 2-2 2'
    )
  ],
  tool: [
    path(
      'M13.500 4.700a3.300 3.300 0 0 1-4.300 4l-4.400 4.500a1.400 1.400 0 0 1-2-2l4.500-4.400' +
        'a3.300 3.300 0 0 1 4-4.300L9.500 4.300l.4 1.800 1.800.4z'
    )
  ],
  ok: [path('M3 8.5l3.2 3.2L13 4.8')],
  running: [path('M8 2.500a5.500 5.500 0 1 1-5.500 5.500')],
  waiting: [circle(8, 8, 5.5), path('M6.5 6v4M9.5 6v4')],
  failed: [path('M4 4l8 8M12 4l-8 8')],
  denied: [circle(8, 8, 5.5), path('M4.2 4.2l7.6 7.6')],
  cancelled: [square(4, 4, 8)],
  interrupted: [path('M2 8h3.5l1-3M9.500 11l1-3H14M9 3.500L7 12.500')],
  expired: [circle(8, 8, 5.5), path('M8 5v3.200l2 1.300')],
  todo: [circle(8, 8, 5)],
  alert: [path('M8 2.500l6 11H2z'), path('M8 6.500v3.200M8 11.700v.1')],
  chevron: [path('M6 4l4 4-4 4')],
  graph: [
    circle(3.5, 8, 1.7),
    circle(12, 3.5, 1.7),
    circle(12, 12.5, 1.7),
    path('M5 7.200l5.500-3M5 8.800l5.500 3')
  ]
};

/** A decorative icon: the word beside it carries the meaning for screen readers. */
export function icon(name: string, attributes: Record<string, string | number> = {}): SVGSVGElement {
  const shapes = (ICONS[name] ?? []).map(shape =>
    shape[0] === 'path'
      ? svg('path', shape[1])
      : shape[0] === 'circle'
        ? svg('circle', shape[1])
        : svg('rect', shape[1])
  );
  return svg(
    'svg',
    { class: 'op-icon', viewBox: '0 0 16 16', width: 16, height: 16, 'aria-hidden': 'true', ...attributes },
    ...shapes
  );
}

/** Handing the focus on to what was asked for, and the page's shortcuts with it. */

const FRAMES = 20;
const INPUT = ['keydown', 'pointerdown'] as const;

/** Keep the focus in an element for a few frames, or until the person does something.

The command palette, as it closes, and a notebook that comes to the front both take it back.
*/
export function keepFocus<E extends HTMLElement>(
  find: () => E | null,
  focus: (element: E) => void
): void {
  let frames = FRAMES;
  const stop = (): void => {
    frames = 0;
  };
  const keep = (): void => {
    if (frames === 0) {
      INPUT.forEach(kind => document.removeEventListener(kind, stop, true));
      return;
    }
    frames -= 1;
    const element = find();
    if (element?.isConnected && !element.contains(document.activeElement)) {
      focus(element);
    }
    requestAnimationFrame(keep);
  };
  INPUT.forEach(kind => document.addEventListener(kind, stop, true));
  keep();
}

/** Let the page's shortcuts work while something in *root* has the focus.

The views' elements keep them away, as their keys would else edit the notebook around them.
*/
export function keepShortcuts(root: HTMLElement): void {
  root.addEventListener('focusin', event => {
    (event.target as Element).removeAttribute('data-lm-suppress-shortcuts');
  });
}

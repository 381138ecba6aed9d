/** A sanitizer that also refuses to fetch: an image address can carry data out of the notebook. */

import type { IRenderMime } from '@jupyterlab/rendermime-interfaces';

export function withoutRemoteImages(base: IRenderMime.ISanitizer): IRenderMime.ISanitizer {
  return {
    allowNamedProperties: base.allowNamedProperties,
    allowCommandLinker: false, // a link in a model's text must not run a command of the front end
    getAutolink: () => base.getAutolink?.() ?? true,
    sanitize: (dirty, options) => {
      // DOMParser makes a document that loads nothing and runs nothing.
      const page = new DOMParser().parseFromString(base.sanitize(dirty, options), 'text/html');
      for (const image of page.querySelectorAll('img')) {
        if (isRemote(image)) {
          image.replaceWith(`[image not loaded: ${image.alt || image.getAttribute('src') || ''}]`);
        }
      }
      for (const element of page.querySelectorAll('video, audio, source, picture, [background]')) {
        element.remove();
      }
      return page.body.innerHTML;
    }
  };
}

function isRemote(image: HTMLImageElement): boolean {
  const source = (image.getAttribute('src') ?? '').replace(/[\s\u0000-\u001f]/g, '');
  const hasScheme = /^[a-z][a-z0-9+.-]*:/i.test(source) && !/^(data:image\/|attachment:)/i.test(source);
  return image.hasAttribute('srcset') || hasScheme || /^[\\/]{2}/.test(source);
}

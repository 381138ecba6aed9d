/** The settings of `schema/plugin.json`, read without trusting the file. */

import type { ISettingRegistry } from '@jupyterlab/settingregistry';
import { type ISignal, Signal } from '@lumino/signaling';

export const PLUGIN_ID = 'op-jupyter-labextension:plugin';

export interface Values {
  notify: 'hidden' | 'always' | 'never';
  badge: boolean;
  refreshSeconds: number;
  subAgents: boolean;
  statusItem: boolean;
}

const DEFAULTS: Values = {
  notify: 'hidden',
  badge: true,
  refreshSeconds: 5,
  subAgents: false,
  statusItem: true
};

/** The values in force; the defaults until they are loaded, and where no registry is. */
export class Settings {
  private _values = DEFAULTS;
  private readonly _changed = new Signal<this, Values>(this);

  get values(): Values {
    return this._values;
  }

  get changed(): ISignal<this, Values> {
    return this._changed;
  }

  async load(registry: ISettingRegistry): Promise<void> {
    const loaded = await registry.load(PLUGIN_ID);
    const take = (): void => {
      // The registry has checked them against the schema.
      this._values = { ...DEFAULTS, ...(loaded.composite as unknown as Values) };
      this._changed.emit(this._values);
    };
    loaded.changed.connect(take);
    take();
  }
}

/** The server extension's addresses; see `op_jupyter/server/handlers.py`. */

import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';

export interface SessionInfo {
  id: string;
  title: string;
  updated_at: string;
  source: string;
  turns: number;
  last_status: string;
  notebook: string;
  snippet?: string;
}

export interface SessionList {
  sessions: SessionInfo[];
  total: number;
}

/** What a session can be exported to, with the words for it. */
export const FORMATS = { md: 'Markdown', html: 'Web page', ipynb: 'Notebook', json: 'JSON' } as const;

export type Format = keyof typeof FORMATS;

/** A refusal, in words for a person. */
export class ApiError extends Error {
  constructor(
    message: string,
    readonly status: number
  ) {
    super(message);
  }
}

const NOT_INSTALLED =
  'This Jupyter server does not have the op-jupyter server extension: install op-jupyter where ' +
  'the server runs, and start it again.';

export class SessionsApi {
  constructor(private readonly settings: ServerConnection.ISettings) {}

  async list(query: string, limit: number, agents: boolean): Promise<SessionList> {
    const asked = URLExt.objectToQueryString({ q: query, limit, agents: agents ? 1 : 0 });
    return (await (await this.ask(asked)).json()) as SessionList;
  }

  async session(id: string): Promise<unknown> {
    return (await this.ask(`/${encodeURIComponent(id)}`)).json();
  }

  async node(id: string, node: string): Promise<Record<string, unknown>> {
    const path = `/${encodeURIComponent(id)}/nodes/${encodeURIComponent(node)}`;
    return (await (await this.ask(path)).json()) as Record<string, unknown>;
  }

  /** The session as a file. */
  async exported(id: string, format: Format): Promise<Blob> {
    const query = URLExt.objectToQueryString({ format });
    return (await this.ask(`/${encodeURIComponent(id)}/export${query}`)).blob();
  }

  async trash(id: string): Promise<void> {
    await this.ask(`/${encodeURIComponent(id)}`, 'DELETE');
  }

  async restore(id: string): Promise<void> {
    await this.ask(`/${encodeURIComponent(id)}/restore`, 'POST');
  }

  private async ask(path: string, method = 'GET'): Promise<Response> {
    const url = URLExt.join(this.settings.baseUrl, 'openprogram', 'sessions') + path;
    const response = await ServerConnection.makeRequest(url, { method }, this.settings);
    if (response.ok) {
      return response;
    }
    throw new ApiError(await words(response), response.status);
  }
}

async function words(response: Response): Promise<string> {
  try {
    const { message } = (await response.json()) as { message?: unknown };
    if (typeof message === 'string' && message) {
      return message;
    }
  } catch {
    // Not ours: a proxy's page, or the server's own.
  }
  return response.status === 404 ? NOT_INSTALLED : `The server said ${response.status}.`;
}

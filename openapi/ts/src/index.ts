// The TypeScript client of the Rouse HTTP API: openapi-fetch over the generated
// description, with who acts and in which service set once.

import createClient, { type Client, type Middleware } from "openapi-fetch";
import type { components, paths } from "./schema.js";

export type { components, operations, paths } from "./schema.js";

/** The named schemas: Schemas["Entity"], Schemas["WakeNotification"], … */
export type Schemas = components["schemas"];

export interface Options {
  /** Base of the server, as in http://127.0.0.1:4437. */
  baseUrl: string;
  /** A user's token, sent as Authorization: Bearer. */
  token?: string;
  /** Who acts, as in user:ada; for `rouse dev`, which asks for no token. */
  principal?: string;
  /** The service; the server's default without it. */
  service?: string;
  fetch?: typeof globalThis.fetch;
}

/** A client with one method for each HTTP verb, typed by path. */
export function rouse(options: Options): Client<paths> {
  const client = createClient<paths>({
    baseUrl: options.baseUrl.replace(/\/+$/, ""),
    ...(options.fetch ? { fetch: (request: Request) => options.fetch!(request) } : {}),
  });
  const identity: Middleware = {
    onRequest({ request }) {
      if (options.token && !request.headers.has("authorization")) {
        request.headers.set("authorization", `Bearer ${options.token}`);
      }
      if (options.principal && !request.headers.has("electric-principal")) {
        request.headers.set("electric-principal", options.principal);
      }
      if (!options.service) return undefined;
      const url = new URL(request.url);
      if (url.searchParams.has("service")) return undefined;
      url.searchParams.set("service", options.service);
      return new Request(url, request);
    },
  };
  client.use(identity);
  return client;
}

/** A refusal or failure; match on its code. */
export class RouseError extends Error {
  readonly code: string;
  readonly status: number;
  readonly problem: Schemas["Problem"] | undefined;

  constructor(status: number, problem: Schemas["Problem"] | undefined) {
    super(problem?.detail ?? problem?.title ?? `HTTP status ${status}`);
    this.name = "RouseError";
    this.code = problem?.code ?? "UNKNOWN";
    this.status = status;
    this.problem = problem;
  }
}

interface Result<T> {
  data?: T;
  error?: unknown;
  response: Response;
}

/** The data of a call, or a thrown RouseError. */
export async function ok<T>(call: Promise<Result<T>>): Promise<T> {
  const { data, error, response } = await call;
  if (!response.ok) {
    const known = typeof error === "object" && error !== null && "code" in error;
    throw new RouseError(response.status, known ? (error as Schemas["Problem"]) : undefined);
  }
  return data as T;
}

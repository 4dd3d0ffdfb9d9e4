// A real OpenID provider: npm's oidc-provider, with login and consent pages, on a free port of this machine.
//
// What lives here: its settings, and a way for tests to change them while it runs (`/_test/…`). What does not: expectations.
// Run by tests/oidc.py; argument 1: the folder in which oidc-provider is installed. Prints its issuer once it listens.
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';
import { join } from 'node:path';

const entry = createRequire(pathToFileURL(join(process.argv[2], 'x.js'))).resolve('oidc-provider');
const { Provider } = await import(pathToFileURL(entry));

const settings = {
  access_ttl: 3600, refresh_ttl: 14 * 24 * 3600, id_ttl: 3600, device_ttl: 600, code_ttl: 60,
  rotate: true, refresh: true, email_verified: true, emails: {}, skew: 0,
};
const real = Date.now.bind(Date);
Date.now = () => real() + settings.skew * 1000;

// Everything that is stored, so that tests can take it away.
const stored = new Map();
class Adapter {
  constructor(kind) { this.kind = kind; }
  key(id) { return `${this.kind}:${id}`; }
  async upsert(id, payload) { stored.set(this.key(id), payload); }
  async find(id) { return stored.get(this.key(id)); }
  async findBy(name, value) {
    for (const [key, one] of stored) if (key.startsWith(`${this.kind}:`) && one[name] === value) return one;
    return undefined;
  }
  async findByUid(uid) { return this.findBy('uid', uid); }
  async findByUserCode(code) { return this.findBy('userCode', code); }
  async destroy(id) { stored.delete(this.key(id)); }
  async consume(id) { const one = stored.get(this.key(id)); if (one) one.consumed = Math.floor(Date.now() / 1000); }
  async revokeByGrantId(grantId) { for (const [key, one] of stored) if (one.grantId === grantId) stored.delete(key); }
}

const secret = 's3cret-s3cret-s3cret-s3cret';
const device = 'urn:ietf:params:oauth:grant-type:device_code';
const code = ['authorization_code', 'refresh_token'];
const anywhere = ['http://127.0.0.1/connect/callback/any'];  // see redirectUriAllowed
const clients = [
  { client_id: 'app', client_secret: secret, redirect_uris: anywhere, grant_types: [...code, device], token_endpoint_auth_method: 'client_secret_basic' },
  { client_id: 'app-post', client_secret: secret, redirect_uris: anywhere, grant_types: code, token_endpoint_auth_method: 'client_secret_post' },
  { client_id: 'public', redirect_uris: anywhere, grant_types: [...code, device], token_endpoint_auth_method: 'none' },
  { client_id: 'machine', client_secret: secret, redirect_uris: [], response_types: [], grant_types: ['client_credentials'], token_endpoint_auth_method: 'client_secret_basic' },
];

const server = createServer();
await new Promise((up) => server.listen(0, '127.0.0.1', up));
const issuer = `http://127.0.0.1:${server.address().port}`;

const email = (sub) => settings.emails[sub] ?? (sub.includes('@') ? sub : `${sub}@example.test`);
const provider = new Provider(issuer, {
  adapter: Adapter,
  clients,
  scopes: ['openid', 'offline_access', 'profile', 'email', 'read', 'write'],
  claims: { openid: ['sub'], profile: ['name'], email: ['email', 'email_verified'] },
  conformIdTokenClaims: false,
  findAccount: (ctx, sub) => ({
    accountId: sub,
    claims: () => ({ sub, name: sub[0].toUpperCase() + sub.slice(1), email: email(sub), email_verified: settings.email_verified }),
  }),
  features: {
    devInteractions: { enabled: true },
    deviceFlow: { enabled: true },
    clientCredentials: { enabled: true },
    registration: { enabled: true },
    revocation: { enabled: true },
    introspection: { enabled: true },
    resourceIndicators: {
      enabled: true,
      defaultResource: () => [],
      useGrantedResource: () => false,
      getResourceServerInfo: (ctx, resource) => ({ scope: 'read write', audience: resource, accessTokenFormat: 'opaque' }),
    },
  },
  ttl: {
    AccessToken: () => settings.access_ttl, RefreshToken: () => settings.refresh_ttl, IdToken: () => settings.id_ttl,
    DeviceCode: () => settings.device_ttl, AuthorizationCode: () => settings.code_ttl, ClientCredentials: () => settings.access_ttl,
    Interaction: () => 3600, Session: () => 3600, Grant: () => 14 * 24 * 3600,
  },
  rotateRefreshToken: () => settings.rotate,
  issueRefreshToken: (ctx, client) => settings.refresh && client.grantTypeAllowed('refresh_token'),
  pkce: { required: () => true },
  cookies: { keys: ['of the test'] },
});

// An app's port isn't known before it starts: any of this machine will do, on the app's own path and no other.
const allowed = provider.Client.prototype.redirectUriAllowed;
provider.Client.prototype.redirectUriAllowed = function redirectUriAllowed(uri) {
  return allowed.call(this, uri)
    || (this.redirectUris.includes(anywhere[0]) && /^http:\/\/(127\.0\.0\.1|localhost):\d+\/connect\/(callback\/[a-z0-9_-]+|identity)$/.test(uri));
};

// What was asked of the token endpoint and how it ended; and what the next answers are to be instead.
const asked = [];
const planned = [];
const body = (request) => new Promise((done) => {
  const parts = [];
  request.on('data', (part) => parts.push(part)).on('end', () => done(Buffer.concat(parts).toString()));
});

async function control(request, response) {
  const given = JSON.parse((await body(request)) || '{}');
  const name = request.url.slice('/_test/'.length);
  let answer = {};
  if (name === 'settings') Object.assign(settings, given);
  else if (name === 'client') await provider.Client.adapter.upsert(given.client_id, given);
  else if (name === 'plan') planned.push(given);
  else if (name === 'asked') answer = asked;
  else if (name === 'revoke') {
    for (const [key, one] of stored) {
      if (/^(AccessToken|RefreshToken|Grant):/.test(key) && (!given.subject || one.accountId === given.subject)) stored.delete(key);
    }
  } else if (name === 'forget_clients') {
    for (const key of stored.keys()) if (key.startsWith('Client:')) stored.delete(key);
  } else if (name === 'reset') { planned.length = 0; asked.length = 0; Object.assign(settings, given); }
  response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(answer));
}

const serve = provider.callback();
server.on('request', (request, response) => {
  if (request.url.startsWith('/_test/')) { control(request, response); return; }
  const path = request.url.split('?')[0];
  const at = planned.findIndex((one) => one.path === path);
  const plan = at >= 0 ? planned.splice(at, 1)[0] : null;
  if (plan?.drop === 'before') { request.socket.destroy(); return; }
  if (plan?.drop === 'after') response.end = () => { request.socket.destroy(); return response; };  // done, but nobody hears
  else if (plan) {
    request.resume();
    response.writeHead(plan.status ?? 200, plan.headers ?? { 'content-type': 'application/json' }).end(plan.body ?? '');
    return;
  }
  serve(request, response);
});
const note = (outcome) => (ctx, error) => asked.push({
  grant_type: ctx.oidc?.params?.grant_type ?? null, client_id: ctx.oidc?.client?.clientId ?? null, outcome: error?.error ?? outcome,
});
provider.on('grant.success', note('granted'));
provider.on('grant.error', note('failed'));
provider.on('server_error', (ctx, error) => console.error(error));
console.log(issuer);

// Signs the documents of vectors.json with jsonld.js and the cryptography of Node, so
// that nothing of this package takes part. Run in test/interop after npm ci:
//   node ../../selfdescription/legacy/testdata/generate.mjs
import {createHash, generateKeyPairSync, sign, constants} from 'node:crypto';
import {readFileSync, writeFileSync} from 'node:fs';
import {createRequire} from 'node:module';

const jsonld = createRequire(`${process.cwd()}/`)('jsonld');
const here = name => new URL(name, import.meta.url);
const context = name => JSON.parse(readFileSync(here(`../contexts/${name}.jsonld`), 'utf8'));
const contexts = {
  'https://www.w3.org/2018/credentials/v1': context('credentials-v1'),
  'https://www.w3.org/ns/credentials/v2': context('credentials-v2'),
  'https://w3id.org/security/suites/jws-2020/v1': context('jws-2020-v1'),
  'https://w3id.org/gaia-x/development#': context('gaia-x-25.11'),
};
const documentLoader = url => {
  if (!contexts[url]) throw new Error(`no context ${url}`);
  return {contextUrl: null, documentUrl: url, document: contexts[url]};
};
const canonical = document => jsonld.canonize(document, {
  algorithm: 'RDFC-1.0', format: 'application/n-quads', documentLoader, safe: true});
const sha256 = text => createHash('sha256').update(text).digest();

const issuer = 'did:web:provider.example';
const keys = {
  EdDSA: generateKeyPairSync('ed25519'),
  ES256: generateKeyPairSync('ec', {namedCurve: 'P-256'}),
  ES384: generateKeyPairSync('ec', {namedCurve: 'P-384'}),
  PS256: generateKeyPairSync('rsa', {modulusLength: 2048}),
  RS256: generateKeyPairSync('rsa', {modulusLength: 2048}),
};

function detached(algorithm, payload) {
  const header = Buffer.from(JSON.stringify({alg: algorithm, b64: false, crit: ['b64']})).toString('base64url');
  const input = Buffer.concat([Buffer.from(`${header}.`), payload]);
  const key = keys[algorithm].privateKey;
  const signature = {
    EdDSA: () => sign(null, input, key),
    ES256: () => sign('sha256', input, {key, dsaEncoding: 'ieee-p1363'}),
    ES384: () => sign('sha384', input, {key, dsaEncoding: 'ieee-p1363'}),
    PS256: () => sign('sha256', input, {key, padding: constants.RSA_PKCS1_PSS_PADDING, saltLength: 32}),
    RS256: () => sign('sha256', input, key),
  }[algorithm]();
  return `${header}..${signature.toString('base64url')}`;
}

const forms = {
  'W3C': async (document, proof) => Buffer.concat([
    sha256(await canonical({'@context': document['@context'], ...proof})), sha256(await canonical(document))]),
  'Gaia-X 2022': async document => Buffer.from(sha256(await canonical(document)).toString('hex')),
};

const documents = JSON.parse(readFileSync(here('documents.json'), 'utf8'));
const vectors = [];
for (const {name, form, document} of documents) {
  for (const algorithm of Object.keys(keys)) {
    const proof = {
      type: 'JsonWebSignature2020', created: '2026-11-01T00:00:00Z',
      proofPurpose: 'assertionMethod', verificationMethod: `${issuer}#${algorithm}`,
    };
    const jws = detached(algorithm, await forms[form](document, proof));
    vectors.push({name: `${name}, ${form}, ${algorithm}`, form, document: {...document, proof: {...proof, jws}}});
  }
}
const jwks = Object.entries(keys).map(([alg, pair]) => ({...pair.publicKey.export({format: 'jwk'}), kid: `${issuer}#${alg}`, alg}));
writeFileSync(here('vectors.json'), JSON.stringify({keys: jwks, vectors}, null, 1) + '\n');

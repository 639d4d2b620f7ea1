// Issues credentials and presentations with jose. On standard input, JSON:
//   did         DID of the issuers; each takes a path of its own
//   algorithms  JWS algorithms
//   forms       [{credential: {typ, cty}, presentation: {typ, cty}}], headers to be used
//   documents   [{context, type, subject}], what is to be said; "ISSUER" stands for the issuer's DID
//   audience, nonce
// On standard output, for each algorithm and form: {algorithm, form, did, document, presentation, list, listToken}. All
// credentials are on one status list, which is published at the URL list; the last one is revoked by it.
import {text} from 'node:stream/consumers';
import {CompactSign, SignJWT, calculateJwkThumbprint, exportJWK, generateKeyPair} from 'jose';
import {encode} from './status.mjs';

const request = JSON.parse(await text(process.stdin));
const answers = [];
for (const alg of request.algorithms) {
  const {publicKey, privateKey} = await generateKeyPair(alg, {extractable: true, ...(alg === 'EdDSA' ? {crv: 'Ed25519'} : {})});
  const jwk = {...await exportJWK(publicKey), alg};
  const did = `${request.did}:${alg}`;
  const kid = `${did}#${await calculateJwkThumbprint(jwk)}`;
  for (const form of request.forms) {
    answers.push({
      algorithm: alg, form, did,
      document: {
        '@context': ['https://www.w3.org/ns/did/v1', 'https://w3id.org/security/suites/jws-2020/v1'],
        id: did,
        verificationMethod: [{id: kid, type: 'JsonWebKey2020', controller: did, publicKeyJwk: jwk}],
        assertionMethod: [kid],
      },
      ...await issue({did, kid, alg, privateKey}, form),
    });
  }
}
console.log(JSON.stringify(answers));

async function issue({did, kid, alg, privateKey}, form) {
  const now = Date.now();
  const list = `https://example.com/lists/${alg}`;
  const sign = credential => new CompactSign(new TextEncoder().encode(JSON.stringify({
    issuer: did,
    validFrom: new Date(now - 60_000).toISOString(),
    validUntil: new Date(now + 3_600_000).toISOString(),
    ...credential,
  }))).setProtectedHeader({alg, kid, iss: did, ...form.credential}).sign(privateKey);

  const documents = JSON.parse(JSON.stringify(request.documents).replaceAll('ISSUER', did));
  const credentials = await Promise.all(documents.map(({context, type, subject}, index) => sign({
    '@context': context,
    id: `${subject.id}-credential`,
    type: ['VerifiableCredential', type],
    credentialSubject: subject,
    credentialStatus: {type: 'BitstringStatusListEntry', statusPurpose: 'revocation', statusListIndex: `${index}`, statusListCredential: list},
  })));
  const listToken = await sign({
    '@context': ['https://www.w3.org/ns/credentials/v2'],
    id: list,
    type: ['VerifiableCredential', 'BitstringStatusListCredential'],
    credentialSubject: {id: `${list}#list`, type: 'BitstringStatusList', statusPurpose: 'revocation', encodedList: encode(documents.length - 1)},
  });
  const presentation = await new SignJWT({
    '@context': ['https://www.w3.org/ns/credentials/v2'],
    type: ['VerifiablePresentation'],
    verifiableCredential: credentials.map(token => ({
      '@context': 'https://www.w3.org/ns/credentials/v2',
      id: `data:application/${form.credential.typ},${token}`,
      type: 'EnvelopedVerifiableCredential',
    })),
    nonce: request.nonce,
  }).setProtectedHeader({alg, kid, iss: did, ...form.presentation})
    .setIssuer(did).setAudience(request.audience).setIssuedAt().setExpirationTime('5m').sign(privateKey);
  return {presentation, list, listToken};
}

// Verifies presentations with jose, jsonld and a SHACL validator. On standard input, JSON:
//   contexts       JSON-LD contexts by URL, as the issuer publishes them
//   presentations  [{token, audience, nonce, documents, keySets, lists}]: what each host publishes, by DID, and the
//                  status lists by URL
// On standard output, for each presentation: {error} or {holder, algorithm, credentials: [{issuer, type, algorithm, subject}], violations}.
import {text} from 'node:stream/consumers';
import {compactVerify, createLocalJWKSet, decodeProtectedHeader, importJWK, jwtVerify} from 'jose';
import {Documents} from './documents.mjs';
import {bit} from './status.mjs';

const request = JSON.parse(await text(process.stdin));
const documents = await Documents.load(request.contexts);
const answers = [];
for (const presentation of request.presentations) {
  try {
    answers.push(await verifyPresentation(presentation));
  } catch (error) {
    answers.push({error: `${error.message} ${error.details ? JSON.stringify(error.details) : ''}`.trim()});
  }
}
console.log(JSON.stringify(answers));

async function verifyPresentation({token, audience, nonce, ...published}) {
  const {key, issuer, alg} = await signer(token, published, 'vp+jwt', 'vp');
  const {payload} = await jwtVerify(token, key, {algorithms: [alg], audience, issuer, maxTokenAge: '10m'});
  check(payload.nonce === nonce, `nonce ${payload.nonce}`);
  check(payload.holder === undefined || idOf(payload.holder) === issuer, `holder ${payload.holder}`);
  check(payload.vp === undefined, 'a vp claim around the presentation');
  check(typesOf(payload).includes('VerifiablePresentation'), `type ${payload.type}`);
  const credentials = [];
  const graphs = [];
  for (const envelope of [payload.verifiableCredential].flat()) {
    check(typesOf(envelope).includes('EnvelopedVerifiableCredential'), `member of type ${envelope.type}`);
    const [, credential] = /^data:application\/vc\+jwt,(.+)$/.exec(envelope.id) ?? [];
    check(credential, 'a member that is not application/vc+jwt');
    const verified = await verifyCredential(credential, published);
    await checkStatus(verified.document, issuer, published);
    graphs.push(await documents.subject(verified.document));
    credentials.push(verified.summary);
  }
  return {holder: issuer, algorithm: alg, credentials, violations: await documents.violations(graphs)};
}

async function verifyCredential(token, published) {
  const {key, keySet, issuer, alg} = await signer(token, published, 'vc+jwt', 'vc');
  const {payload} = await compactVerify(token, key, {algorithms: [alg]});
  await compactVerify(token, keySet, {algorithms: [alg]});
  const document = JSON.parse(new TextDecoder().decode(payload));
  check(document.vc === undefined, 'a vc claim around the credential');
  check(idOf(document.issuer) === issuer, `issued by ${idOf(document.issuer)}, signed by ${issuer}`);
  check(typesOf(document).includes('VerifiableCredential'), `type ${document.type}`);
  check(Date.parse(document.validFrom) <= Date.now() && Date.now() < Date.parse(document.validUntil), `valid from ${document.validFrom} until ${document.validUntil}`);
  const subject = document.credentialSubject;
  return {document, summary: {issuer, type: [subject.type].flat()[0], algorithm: alg, subject}};
}

// checkStatus looks the credential up in the status lists that it names.
async function checkStatus(document, issuer, published) {
  for (const entry of [document.credentialStatus ?? []].flat()) {
    check(entry.type === 'BitstringStatusListEntry', `credentialStatus of type ${entry.type}`);
    const {document: list} = await verifyCredential(published.lists[entry.statusListCredential], published);
    await documents.subject(list);
    check(list.id === entry.statusListCredential && idOf(list.issuer) === issuer, `list ${list.id} of ${idOf(list.issuer)}`);
    check(typesOf(list).includes('BitstringStatusListCredential'), `type ${list.type}`);
    check(list.credentialSubject.statusPurpose === entry.statusPurpose, `statusPurpose ${list.credentialSubject.statusPurpose}`);
    check(!bit(list.credentialSubject.encodedList, Number(entry.statusListIndex)), `${entry.statusPurpose} bit ${entry.statusListIndex} is set`);
  }
}

// signer finds the key that a token names among those its issuer lists for assertions.
async function signer(token, {documents, keySets}, typ, cty) {
  const header = decodeProtectedHeader(token);
  check(header.typ === typ && header.cty === cty, `typ ${header.typ}, cty ${header.cty}`);
  for (const name of ['jwk', 'jku', 'x5c', 'crit']) check(!(name in header), `header ${name}`);
  const [issuer] = header.kid.split('#');
  check(header.iss === undefined || header.iss === issuer, `header iss ${header.iss}, kid ${header.kid}`);
  const published = documents[issuer];
  check(published?.id === issuer, `${issuer} publishes no document of its own`);
  check(published.assertionMethod.includes(header.kid), `${header.kid} is not for assertions`);
  const {publicKeyJwk, controller} = published.verificationMethod.find(method => method.id === header.kid);
  check(controller === issuer, `controller ${controller}`);
  check(!('d' in publicKeyJwk), 'a private key is published');
  return {key: await importJWK(publicKeyJwk, header.alg), keySet: createLocalJWKSet(keySets[issuer]), issuer, alg: header.alg};
}

function check(holds, otherwise) {
  if (!holds) throw new Error(otherwise);
}
function idOf(node) { return typeof node === 'string' ? node : node.id; }
function typesOf(node) { return [node.type].flat(); }

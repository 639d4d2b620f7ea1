// What a JSON-LD processor and a SHACL validator say of a credential's document.
// Contexts are those of this folder and of a package with a pinned digest: nothing is fetched.
import {readFile} from 'node:fs/promises';
import {contexts as w3c} from '@digitalbazaar/credentials-context';
import jsonld from 'jsonld';
import N3 from 'n3';
import SHACLValidator from 'rdf-validate-shacl';
import environment from 'rdf-validate-shacl/src/defaultEnv.js';

const read = name => readFile(new URL(`testdata/${name}`, import.meta.url), 'utf8');
const gaiaX = 'https://w3id.org/gaia-x/development#';
const rdfType = 'http://www.w3.org/1999/02/22-rdf-syntax-ns#type';
const credentialSubject = 'https://www.w3.org/2018/credentials#credentialSubject';

// The part of Gaia-X's class hierarchy that our subjects need; the published shapes leave it out.
const superclasses = {
  VatID: 'RegistrationNumber', LeiCode: 'RegistrationNumber', EORI: 'RegistrationNumber', EUID: 'RegistrationNumber', TaxID: 'RegistrationNumber',
  ComputeServiceOffering: 'ServiceOffering', Datacenter: 'PhysicalResource', AvailabilityZone: 'Resource',
};

// Documents expands credentials with pinned contexts and holds their subjects against the published shapes.
export class Documents {
  #contexts; #shapes;

  // load takes the contexts that the broker publishes, by URL.
  static async load(published) {
    const documents = new Documents();
    documents.#contexts = new Map([...w3c, ...Object.entries(published), [gaiaX, JSON.parse(await read('gx.context.jsonld'))]]);
    documents.#shapes = turtle(await read('gx.shacl.ttl'));
    return documents;
  }

  // subject returns the graph of a credential's subject, expanded in safe mode: a term that no
  // context defines is an error, not dropped.
  async subject(credential) {
    const [expanded] = await jsonld.expand(credential, {safe: true, documentLoader: url => this.#load(url)});
    const subjects = expanded?.[credentialSubject];
    if (!subjects?.length) throw new Error('no credentialSubject after expansion');
    const quads = await jsonld.toRDF(subjects, {safe: true, skipExpansion: true, format: 'application/n-quads'});
    return turtle(quads);
  }

  // violations holds the subjects of one presentation, which refer to one another, against the shapes. Those of other
  // vocabularies are left out: they may say more about a subject whose shape is closed.
  async violations(subjects) {
    const data = environment.dataset(subjects.filter(isGaiaX).flatMap(subject => [...subject]));
    for (const [name, superclass] of Object.entries(superclasses)) {
      data.add(environment.quad(
        environment.namedNode(gaiaX + name), environment.namedNode('http://www.w3.org/2000/01/rdf-schema#subClassOf'), environment.namedNode(gaiaX + superclass)));
    }
    const report = await new SHACLValidator(this.#shapes, {factory: environment}).validate(data);
    return report.results.map(result => [result.focusNode, result.path, result.sourceConstraintComponent, result.value]
      .map(term => term?.value?.replace(/^.*[#/]/, '') ?? '').join(' '));
  }

  #load(url) {
    const document = this.#contexts.get(url);
    if (!document) throw new Error(`context ${url} is not pinned`);
    return {contextUrl: null, documentUrl: url, document};
  }
}

function isGaiaX(subject) {
  return [...subject].some(({predicate, object}) => predicate.value === rdfType && object.value.startsWith(gaiaX));
}

// turtle parses Turtle or N-Quads; blank nodes of different calls stay different.
let calls = 0;
function turtle(text) {
  return environment.dataset(new N3.Parser({factory: environment, blankNodePrefix: `_:g${calls++}-`}).parse(text));
}

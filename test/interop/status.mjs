// Bitstring Status List v1.0, as far as the tests need it.
import {gunzipSync, gzipSync} from 'node:zlib';

// bit reads one bit of an encoded list; the first bit is the leftmost one.
export function bit(encodedList, index) {
  if (!encodedList.startsWith('u')) throw new Error(`encodedList is not multibase base64url: ${encodedList.slice(0, 10)}`);
  const bits = gunzipSync(Buffer.from(encodedList.slice(1), 'base64url'));
  if (bits.length * 8 < 131072) throw new Error(`a list of ${bits.length * 8} bits`);
  return (bits[index >> 3] >> (7 - index % 8)) & 1;
}

// encode makes a list of the least size with some bits set.
export function encode(...set) {
  const bits = Buffer.alloc(131072 / 8);
  for (const index of set) bits[index >> 3] |= 0x80 >> (index % 8);
  return `u${gzipSync(bits).toString('base64url')}`;
}

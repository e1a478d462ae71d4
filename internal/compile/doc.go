// Package compile turns API objects into the core's vocabulary: it parses text once, at the edge, and says what is wrong
// with an object that cannot be used (rule P20). It holds no policy: what is decided from the result is decided in the
// core. It has no client, no clock and no state but the Store.
package compile

// Package linear checks histories of real calls against models: several
// gateways on one database, many clients over HTTP, and porcupine to say
// whether some order of the calls explains every answer.
//
// It holds tests only. A history that says nothing proves nothing: each test
// also demands that enough calls succeeded, and prints its seed.
package linear

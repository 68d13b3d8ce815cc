// Package archtest owns the house rules that a compiler does not check: who may import whom, that every package says
// what it is for, how long a file may be, and what tests and product code may not do.
//
// It promises to name the file and the rule. It holds nothing but tests.
package archtest

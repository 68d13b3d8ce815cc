// Package cli owns the command line: it reads flags, calls the rooms that do the work, and puts outcomes into words,
// JSON and exit codes.
//
// It promises that exit codes keep their meaning, that results go to standard output and everything else to standard
// error, and that --json answers are one JSON value, or one on each line where they come one after the other (reading,
// tailing, running). It must not decide anything a room should decide.
package cli

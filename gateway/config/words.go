package config

import (
	"regexp"
	"strings"
)

// wrongType is how the parser says that a value is of another type than a setting's, once what it quotes is cut.
var wrongType = regexp.MustCompile(`cannot unmarshal !!\w+ (?:… )?into (.+)$`)

// InWords puts a complaint of the YAML parser about a value's type into the words of a file's author, who knows no type
// of this program. Other complaints stay as they are.
func InWords(complaint string) string {
	return wrongType.ReplaceAllStringFunc(complaint, func(s string) string {
		_, goType, _ := strings.Cut(s, "into ")
		return wanted(goType) + " must stand here"
	})
}

// wanted names what a value of a Go type looks like in a file.
func wanted(goType string) string {
	switch {
	case goType == "time.Duration":
		return "a time with its unit, such as 30s,"
	case strings.HasPrefix(goType, "[]"):
		return "a list"
	case goType == "string" || strings.HasSuffix(goType, ".Secret"):
		return "a text"
	case goType == "bool":
		return "true or false"
	case strings.HasPrefix(goType, "int"), strings.HasPrefix(goType, "uint"), strings.HasPrefix(goType, "float"):
		return "a number"
	}
	return "named members"
}

package remoting

import "strconv"

// Language is the language of a frame's sender. Java: LanguageCode.
type Language int8

// LanguageUnknown is what RocketMQ reads as null.
const LanguageUnknown Language = -1

const (
	LanguageJava Language = iota
	LanguageCPP
	LanguageDotnet
	LanguagePython
	LanguageDelphi
	LanguageErlang
	LanguageRuby
	LanguageOther
	LanguageHTTP
	LanguageGo
	LanguagePHP
	LanguageOMS
	LanguageRust
	LanguageNodeJS
)

// languageName returns the name on the wire; ok is false for an unknown one.
func languageName(l Language) (name string, ok bool) {
	switch l {
	case LanguageJava:
		return "JAVA", true
	case LanguageCPP:
		return "CPP", true
	case LanguageDotnet:
		return "DOTNET", true
	case LanguagePython:
		return "PYTHON", true
	case LanguageDelphi:
		return "DELPHI", true
	case LanguageErlang:
		return "ERLANG", true
	case LanguageRuby:
		return "RUBY", true
	case LanguageOther:
		return "OTHER", true
	case LanguageHTTP:
		return "HTTP", true
	case LanguageGo:
		return "GO", true
	case LanguagePHP:
		return "PHP", true
	case LanguageOMS:
		return "OMS", true
	case LanguageRust:
		return "RUST", true
	case LanguageNodeJS:
		return "NODE_JS", true
	}
	return "", false
}

// String returns the name on the wire.
func (l Language) String() string {
	if name, ok := languageName(l); ok {
		return name
	}
	return "unknown language " + strconv.Itoa(int(l))
}

// languageOf finds a language by its name on the wire.
func languageOf(name string) Language {
	for l := LanguageJava; l <= LanguageNodeJS; l++ {
		if n, _ := languageName(l); n == name {
			return l
		}
	}
	return LanguageUnknown
}

// languageAt finds a language by its number.
func languageAt(n int64) Language {
	if n < int64(LanguageJava) || n > int64(LanguageNodeJS) {
		return LanguageUnknown
	}
	return Language(n)
}

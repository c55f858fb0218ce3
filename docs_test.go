package pocketmq_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDocsNameTestsThatExist(t *testing.T) {
	declared := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz)\w+)\(`)
	require.NoError(t, filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range function.FindAllStringSubmatch(string(text), -1) {
			declared[m[1]] = true
		}
		return err
	}))
	pages, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	require.NotEmpty(t, pages)
	for _, page := range pages {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		named := regexp.MustCompile("`((?:Test|Benchmark|Fuzz)\\w+)`").FindAllStringSubmatch(string(text), -1)
		require.NotEmpty(t, named, page)
		for _, m := range named {
			assert.True(t, declared[m[1]], "%s names %s", page, m[1])
		}
	}
}

// goNames are the exported names of the repository: package -> name -> the file
// that declares it. Fields and methods are there as Type.Member; the name of an
// alias stands for that of its type.
func goNames(t *testing.T) map[string]map[string]string {
	t.Helper()
	all := make(map[string]map[string]string)
	aliases := make(map[string]string) // of the root: MessageQueue -> message.Queue
	for _, f := range sources(t) {
		if f.test {
			continue
		}
		pkg := f.ast.Name.Name
		names := all[pkg]
		if names == nil {
			names = make(map[string]string)
			all[pkg] = names
		}
		add := func(parts ...string) { names[strings.Join(parts, ".")] = f.path }
		members := func(owner string, list *ast.FieldList) {
			for _, field := range list.List {
				for _, id := range field.Names {
					add(owner, id.Name)
				}
			}
		}
		for _, d := range f.ast.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					add(d.Name.Name)
					continue
				}
				recv := d.Recv.List[0].Type
				if star, ok := recv.(*ast.StarExpr); ok {
					recv = star.X
				}
				if id, ok := recv.(*ast.Ident); ok {
					add(id.Name, d.Name.Name)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch spec := spec.(type) {
					case *ast.ValueSpec:
						for _, id := range spec.Names {
							add(id.Name)
						}
					case *ast.TypeSpec:
						add(spec.Name.Name)
						switch typ := spec.Type.(type) {
						case *ast.StructType:
							members(spec.Name.Name, typ.Fields)
						case *ast.InterfaceType:
							members(spec.Name.Name, typ.Methods)
						case *ast.SelectorExpr:
							if x, ok := typ.X.(*ast.Ident); ok && spec.Assign.IsValid() {
								aliases[spec.Name.Name] = x.Name + "." + typ.Sel.Name
							}
						}
					}
				}
			}
		}
	}
	for alias, of := range aliases {
		pkg, name, _ := strings.Cut(of, ".")
		for member, file := range all[pkg] {
			if rest, ok := strings.CutPrefix(member, name+"."); ok {
				all["pocketmq"][alias+"."+rest] = file
			}
		}
	}
	return all
}

// declaredIn returns the file that declares a name as pages write it: of the root,
// or with its package before it; "" for none.
func declaredIn(all map[string]map[string]string, name string) string {
	if file := all["pocketmq"][name]; file != "" {
		return file
	}
	pkg, rest, _ := strings.Cut(name, ".")
	return all[pkg][rest]
}

var (
	quotedWord = regexp.MustCompile("`([^`\n]+)`")
	goName     = regexp.MustCompile(`^(?:[a-z]+\.)?[A-Z]\w*(?:\.[A-Z]\w*)*$`)
	filePath   = regexp.MustCompile(`^[\w./-]+\.(?:go|md)$|^[\w.-]+(?:/[\w.-]+)+/?$`)
	testName   = regexp.MustCompile(`^(?:Test|Benchmark|Fuzz)[A-Z]`)
)

func TestDocsNameWhatExists(t *testing.T) {
	all := goNames(t)
	anywhere := make(map[string]bool) // fields and methods by their bare names
	for _, names := range all {
		for name := range names {
			anywhere[name[strings.LastIndex(name, ".")+1:]] = true
		}
	}
	for page, strict := range map[string]bool{"docs/concepts.md": true, "docs/troubleshooting.md": false} {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, m := range quotedWord.FindAllStringSubmatch(string(text), -1) {
			switch word := strings.TrimSuffix(m[1], "()"); {
			case testName.MatchString(word) || strings.HasPrefix(word, "errors."):
			case filePath.MatchString(word):
				assert.FileExists(t, word, "%s names %s", page, word)
			case goName.MatchString(word):
				assert.True(t, declaredIn(all, word) != "" || !strict && anywhere[word], "%s names %s, which there is not", page, word)
			}
		}
	}
	// A row of the dictionary says where its name is declared.
	text, err := os.ReadFile("docs/concepts.md")
	require.NoError(t, err)
	rows := regexp.MustCompile("(?m)^\\|[^|\n]+\\|([^|\n]+)\\| `([^`\n]+)` \\| `([^`\n]+)` \\|$").FindAllStringSubmatch(string(text), -1)
	assert.Greater(t, len(rows), 60)
	for _, row := range rows {
		assert.NotEmpty(t, strings.TrimSpace(row[1]), "the Chinese for %s", row[2])
		assert.Equal(t, row[3], declaredIn(all, row[2]), "the file of %s", row[2])
	}
}

func TestDocsTroubleshootingIsTested(t *testing.T) {
	page, err := os.ReadFile(troublePage)
	require.NoError(t, err)
	source, err := os.ReadFile("trouble_test.go")
	require.NoError(t, err)
	file, err := parser.ParseFile(token.NewFileSet(), "trouble_test.go", source, 0)
	require.NoError(t, err)
	lines := make(map[string][]string) // of each test
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && strings.HasPrefix(f.Name.Name, "TestTrouble") {
			for _, line := range strings.Split(string(source[f.Pos()-file.FileStart:f.End()-file.FileStart]), "\n") {
				lines[f.Name.Name] = append(lines[f.Name.Name], strings.TrimSpace(line))
			}
		}
	}
	entries := strings.Split(string(page), "\n## ")[1:]
	assert.Len(t, entries, len(lines), "one test for each entry")
	for _, entry := range entries {
		title, _, _ := strings.Cut(entry, "\n")
		named := regexp.MustCompile("Test: `(TestTrouble\\w+)`\\.\\s*$").FindStringSubmatch(entry)
		if !assert.NotNil(t, named, "%q ends with the name of its test", title) {
			continue
		}
		body := lines[named[1]]
		assert.Contains(t, strings.Join(body, "\n"), title, "%s is about %q", named[1], title)
		assert.Contains(t, entry, "```text\n", "%q says what is seen", title)
		for _, block := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(entry, -1) {
			for _, line := range strings.Split(strings.TrimSpace(block[1]), "\n") {
				assert.True(t, slices.Contains(body, strings.TrimSpace(line)), "%q: %s does not run\n%s", title, named[1], line)
			}
		}
	}
}

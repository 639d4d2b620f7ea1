package crash

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/placement/liqo"
)

// The steps during which a kill can happen; stories_test.go holds what they do.
const (
	provision   = "provision"                           // one cluster
	bind        = "bind"                                //
	update      = "update to a larger plan"             // and to two clusters
	touch       = "update the context"                  //
	overreach   = "update to what fits nowhere"         // fails, and changes nothing
	rotate      = "rotate"                              // for both clusters
	unbind      = "unbind"                              //
	deprovision = "deprovision"                         // with a binding left
	shrink      = "update to fewer clusters"            //
	refused     = "provision what is refused"           // fails, and leaves nothing
	repeat      = "provision again"                     // what was refused
	crowd       = "provision more than fits"            // three, each over half a cluster
	late        = "provision when all is taken"         // waits
	release     = "deprovision where another one waits" //
	move        = "move to another cluster"             // because its operator asks for it
	register    = "register a cluster"                  //
	unregister  = "unregister a cluster"                //
	publish     = "publish an offering"                 //
	withdraw    = "withdraw an offering"                //
)

// rows say where to kill, and during which step.
var rows = []struct{ point, during string }{
	{"provision.before-create", provision},
	{"provision.after-create", provision},
	{"place.before-decision", provision},
	{"place.before-decision", update},
	{"place.before-decision", crowd},
	{"place.after-decision", provision},
	{"place.after-decision", update},
	{"place.after-decision", shrink},
	{"deliver.before-namespace", provision},
	{"deliver.before-namespace", update},
	{"deliver.after-namespace", provision},
	{"deliver.after-namespace", update},
	{"deliver.before-self-binding", provision},
	{"deliver.after-self-binding", provision},
	{"place.after-decision", crowd},
	{"place.before-decision", move},
	{"place.after-decision", move},
	{"deliver.after-namespace", move},
	{"deliver.before-delivered", move},
	{"deliver.after-delivered", move},
	{"bind.after-clusters", move},
	{"bind.after-token", move},
	{"bind.before-status", move},
	{"bind.after-status", move},
	{"move.before-cleaned", move},
	{"move.after-cleaned", move},
	{"provision.after-create", late},
	{"deliver.before-objects", provision},
	{"deliver.before-quota", provision},
	{"deliver.before-quota", update},
	{"deliver.after-quota", provision},
	{"deliver.after-quota", update},
	{"deliver.after-objects", provision},
	{"deliver.before-delivered", provision},
	{"deliver.before-delivered", update},
	{"deliver.after-delivered", provision},
	{"deliver.after-delivered", crowd},
	{"status.after-progress", late},
	{"deliver.before-failed", refused},
	{"deliver.before-failed", overreach},
	{"deliver.after-failed", refused},
	{"deliver.after-failed", overreach},
	{"provision.before-attempt", repeat},
	{"provision.after-attempt", repeat},
	{"update.before-write", update},
	{"update.after-write", update},
	{"update.before-context", touch},
	{"update.after-context", touch},
	{"remove.before-finalizer", release},
	{"bind.before-create", bind},
	{"bind.after-create", bind},
	{"bind.before-clusters", bind},
	{"bind.after-clusters", bind},
	{"bind.before-account", bind},
	{"bind.after-account", bind},
	{"bind.before-role-binding", bind},
	{"bind.after-role-binding", bind},
	{"remove.after-finalizer", release},
	{"bind.before-token", bind},
	{"bind.after-token", bind},
	{"bind.after-token", rotate},
	{"bind.before-status", bind},
	{"bind.before-status", rotate},
	{"bind.after-status", bind},
	{"unbind.before-delete", unbind},
	{"unbind.after-delete", unbind},
	{"unbind.before-revoke", unbind},
	{"unbind.before-revoke", deprovision},
	{"place.after-decision", release},
	{"unbind.after-revoke", unbind},
	{"unbind.before-finalizer", unbind},
	{"unbind.after-finalizer", unbind},
	{"deprovision.before-delete", deprovision},
	{"deprovision.after-delete", deprovision},
	{"remove.before-unbind", deprovision},
	{"remove.after-unbind", deprovision},
	{"remove.before-namespace", deprovision},
	{"remove.before-namespace", shrink},
	{"remove.after-namespace", deprovision},
	{"remove.after-namespace", shrink},
	{"remove.before-finalizer", deprovision},
	{"remove.after-finalizer", deprovision},
	{"status.before-progress", deprovision},
	{"status.after-progress", deprovision},
	{"cluster.before-finalizer", register},
	{"cluster.after-finalizer", register},
	{"cluster.before-status", register},
	{"cluster.after-status", register},
	{"cluster.before-release", unregister},
	{"cluster.after-release", unregister},
	{"catalog.before-finalizer", publish},
	{"catalog.after-finalizer", publish},
	{"catalog.before-status", publish},
	{"catalog.after-status", publish},
	{"catalog.before-finalizer-removal", withdraw},
	{"catalog.after-finalizer-removal", withdraw},
}

// whileMade, whileGrown and whileGivenBack are where to kill, one after the other, while a
// cluster is made for what fits nowhere, while it grows, and while it is given back.
var (
	whileMade = []string{
		"elastic.before-order", "elastic.after-order", "deliver.before-cluster", "deliver.after-cluster",
		"deliver.before-add-on", "deliver.after-add-on",
		"elastic.before-join", "elastic.after-join",
	}
	whileGrown = []string{"elastic.before-grow", "elastic.after-grow"}
	// whileAddressed is where bindings.TestKilledWhileAddressed kills.
	whileAddressed = []string{
		"bind.before-address", "bind.after-address", "unbind.before-address-delete", "unbind.after-address-delete",
	}
	whileGivenBack = []string{
		"elastic.before-retire", "elastic.after-retire", "elastic.before-give-back", "elastic.after-give-back",
		"remove.before-cluster", "remove.after-cluster",
	}
)

// aPoint is how crash points are named: a step, and which side of which write.
var aPoint = regexp.MustCompile(`^[a-z]+\.(before|after)-[a-z-]+$`)

func TestEveryCrashPointHasARow(t *testing.T) {
	declared := crashPoints(t, "../..")
	if len(declared) < 25 {
		t.Errorf("found only %d crash points in the source", len(declared))
	}
	tested := map[string]bool{}
	// Those of peerings kill where Liqo is: TestPeering of test/e2e.
	points := slices.Concat(liqo.CrashPoints, whileMade, whileGrown, whileGivenBack, whileAddressed)
	for _, r := range rows {
		points = append(points, r.point)
	}
	for _, point := range points {
		tested[point] = true
		if declared[point] == "" {
			t.Errorf("%s: no such crash point in the source", point)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(declared)) {
		if !tested[name] {
			t.Errorf("%s, in %s: nothing kills there; add a row", name, declared[name])
		}
	}
}

// crashPoints finds the names of crash points in the product's source, and where
// they are: every string that looks like one in the packages that import
// internal/crashpoint.
func crashPoints(t *testing.T, root string) map[string]string {
	t.Helper()
	positions := token.NewFileSet()
	points := map[string]string{}
	for _, files := range packagesWithCrashPoints(t, positions, root) {
		for _, file := range files {
			ast.Inspect(file, func(node ast.Node) bool {
				switch node := node.(type) {
				case *ast.ValueSpec:
					if isCrashConstant(node) && !aPoint.MatchString(text(node.Values[0])) {
						t.Errorf("%s: %s is not named like a crash point", positions.Position(node.Pos()), node.Names[0])
					}
				case *ast.BasicLit:
					if name := text(node); aPoint.MatchString(name) {
						points[name] = positions.Position(node.Pos()).String()
					}
				}
				return true
			})
		}
	}
	return points
}

// packagesWithCrashPoints parses the product's packages that import
// internal/crashpoint.
func packagesWithCrashPoints(t *testing.T, positions *token.FileSet, root string) map[string][]*ast.File {
	t.Helper()
	packages := map[string][]*ast.File{}
	using := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (path == filepath.Join(root, "test") || entry.Name()[0] == '.' && path != root):
			return filepath.SkipDir
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(positions, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		folder := filepath.Dir(path)
		packages[folder] = append(packages[folder], file)
		for _, imported := range file.Imports {
			if strings.HasSuffix(text(imported.Path), "/internal/crashpoint") {
				using[folder] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(packages, func(folder string, _ []*ast.File) bool { return !using[folder] })
	return packages
}

func isCrashConstant(spec *ast.ValueSpec) bool {
	return strings.HasPrefix(spec.Names[0].Name, "crash") && len(spec.Values) > 0
}

// text is what a string literal says, and nothing for everything else.
func text(e ast.Expr) string {
	literal, ok := e.(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return ""
	}
	unquoted, _ := strconv.Unquote(literal.Value)
	return unquoted
}

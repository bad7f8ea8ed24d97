package installing

import (
	"slices"
	"strings"
	"testing"
)

func TestLine(t *testing.T) {
	for text, want := range map[string]string{
		"npx skills add o/r --skill pdf -y":                                 "install o/r pdf",
		"npx skillsd list --json":                                           "list --json",
		"npx -y skillsd@1.0.0 setup":                                        "setup",
		"skillsd install o/r --tier user":                                   "install o/r --tier user",
		"install npx skillsd install o/r":                                   "install o/r",
		"install npx skills add o/r":                                        "install o/r",
		"install npx -y skills@latest add o/r --skill pdf docx -a codex -g": "install o/r pdf docx",
		"install npx skills add https://h/o/r --skill=pdf --yes":            "install https://h/o/r pdf",
		"install npx skills add o/r --skill * -a claude-code":               "install o/r --all",
		"install --state /s bunx skills add o/r --all":                      "install --state /s o/r --all",
		"install pnpm dlx add-skill o/r":                                    "install o/r",
		"install /plugin marketplace add o/r":                               "install o/r",
		"install claude plugin marketplace add o/r":                         "install o/r",
		"install codex plugin marketplace add o/r":                          "install o/r",
		"install npx ctx7 skills install /o/r pdf":                          "install o/r pdf",
		"npx ctx7@latest skills install /o/r":                               "install o/r",
		"install npx skills add /home/skills":                               "install /home/skills",
		"install --state=/s aider plugin install o/r":                       "install --state=/s o/r",
		"install npx openskills install o/r":                                "install o/r",
		"install npx skills@latest add o/r --skill x":                       "install o/r x",
		"install /plugin install x@y":                                       "install x@y",
		"install claude plugin install x@y --scope user":                    "install x@y",
		"install copilot plugin install o/r":                                "install o/r",
		"install gemini extensions install https://h/o/r --ref=v1":          "install https://h/o/r --ref=v1",
		"install gh skill install o/r pdf":                                  "install o/r pdf",
		"install git clone https://h/o/r.git -b dev":                        "install https://h/o/r.git --ref=dev",
		"git clone --depth 1 -b dev https://h/o/r.git mydir":                "install https://h/o/r.git --ref=dev",
		"git clone -bdev https://h/o/r":                                     "install https://h/o/r --ref=dev",
		"git clone -qbdev -j4 https://h/o/r":                                "install https://h/o/r --ref=dev",
		"git clone -qb dev https://h/o/r":                                   "install https://h/o/r --ref=dev",
		"npx skills add o/r --list":                                         "install o/r --all --dry-run",
		"install npx skills add o/r --skill pdf -l":                         "install o/r pdf --dry-run",
		"--state /s install npx skills add o/r --skill pdf":                 "--state /s install o/r pdf",
		"--state=/s --config c npx skills add o/r":                          "--state=/s --config c install o/r",
		"--state /s npx -y skillsd list":                                    "--state /s list",
		"npx skills i o/r --skill pdf":                                      "install o/r pdf",
		"install gh skill install o/r pdf --pin=v1":                         "install o/r pdf --ref=v1",
		"gh skill install o/r pdf --pin v1":                                 "install o/r pdf --ref=v1",
		"npx skills add o/r --signed-by k.pub --skill pdf --sha256=0 -g":    "install o/r --signed-by=k.pub --sha256=0 pdf",
		"gemini skills install o/r --path=skills/pdf":                       "install o/r --subdir=skills/pdf",
		"install npx skills a o/r":                                          "install o/r",
		"bun x skills add o/r":                                              "install o/r",
		"install pnpx skills add o/r":                                       "install o/r",
		"npm exec -- skills add o/r":                                        "install o/r",
		"gh repo clone o/r dir -- --depth 1 -bdev":                          "install o/r --ref=dev",
		"install git clone --single-branch --branch=v1 --filter=x h/o/r .":  "install h/o/r --ref=v1",
	} {
		args := strings.Fields(text)
		if got, ok := PastedLine(args); !ok || strings.Join(got, " ") != want {
			t.Errorf("%s = %q, %t, want %q", text, got, ok, want)
		}
		// In a shell, the command may also be one argument.
		if at := slices.Index(args, "npx"); at == 1 {
			quoted := []string{"install", strings.Join(args[1:], " ")}
			if got, ok := PastedLine(quoted); !ok || strings.Join(got, " ") != want {
				t.Errorf("%q = %q, %t, want %q", quoted, got, ok, want)
			}
		}
	}
	for _, text := range []string{"install o/r", "install ./skills add", "serve", "list npx skills add o/r", "install git",
		"install skills a b", "install add-skill pdf", "install ../r add-skill x/pdf", "install ../r git clone x/y", "install https://h/o/r git clone",
		"--state /s install o/r", "--state /s list", "--version", "-h"} {
		if got, ok := PastedLine(strings.Fields(text)); ok {
			t.Errorf("%s is read as %q", text, got)
		}
	}
}

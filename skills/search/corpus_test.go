package search_test

import (
	"strings"

	"github.com/skillsd/skillsd/skills"
)

// invented is a catalogue of skills: path | tags | description | when_to_use.
const invented = `
api-design || Design REST and GraphQL interfaces: resource names, status codes, pagination and versioning. |
acme/billing/invoices | finance | Draft invoices for customers and post them to the ledger. | The user mentions a bill, payment terms or dunning.
acme/billing/refunds | finance | Work out whether an order qualifies for money back and issue it. |
acme/legal/contract-review | law | Compare a contract with the standard clauses and list what deviates. |
acme/onboarding || Prepare accounts, equipment and a first-week plan for a colleague who joins. |
adr-writer | architecture docs | Record an architecture decision: context, options, outcome, consequences. |
ansible-playbooks | ops | Write idempotent playbooks and roles, and check them with molecule. |
audio-transcription || Turn recordings into text with speaker labels and timestamps. |
backup-restore | ops | Plan, run and verify backups of databases and volumes, and rehearse restoring them. |
bash-scripting || Robust shell scripts: quoting, traps, exit codes, shellcheck. |
blog-post || Write an article for the company blog: outline, draft, headline, call to action. |
bug-triage || Sort incoming defect reports by severity, find duplicates, ask for what is missing. |
changelog | release | Summarise merged pull requests into a changelog entry for readers. |
code-review | quality | Look through a diff for defects, unclear names and missing tests. | The user asks for feedback on a pull request or a patch.
conventional-commits | git | Phrase messages for git in the form type(scope): subject. |
cpp-modernize | cpp | Bring C++ code from before C++11 to current idioms: smart pointers, ranges. |
csharp-linq || Write readable LINQ queries in C# and explain what SQL they become. |
csv-report || Summarise a CSV file: columns, types, missing values, outliers. |
data-visualization | charts | Choose a fitting chart for a data set and draw it with matplotlib or Vega. |
database-migration | sql | Change a schema without downtime: expand, backfill, contract. |
dependency-update || Upgrade libraries step by step, read their release notes, run the tests. |
docker-image | containers | Write a small and safe Dockerfile with several stages. |
docx-edit | office | Read and change Word documents, keep tracked changes and comments. |
email-triage || Sort a mailbox, propose answers, flag what is urgent. |
excel-models | office spreadsheet | Build workbooks with formulas, named ranges and checks; files end in .xlsx. |
feature-flags || Introduce, roll out and remove switches for unfinished functions. |
flaky-tests | quality | Find out why a test fails only sometimes: order, time, shared state. |
frontend-design | ui | Build web pages with a distinctive look: layout, type, colour, motion. |
git-bisect | git | Find the change that introduced a regression by halving the history. |
github-actions | ci | Write workflows that build, test and release on GitHub runners. |
go-profiling | golang performance | Find hot spots in Go programs with pprof and benchmarks. |
graphql-client || Generate typed clients from a schema and cache responses. |
helm-charts | k8s | Package applications for a cluster, with values per environment. |
image-resize || Scale, crop and compress pictures in JPEG, PNG and WebP. |
incident-report | ops | Write a blameless account of an outage: timeline, impact, causes, actions. |
java-spring || Services in Java with Spring Boot: configuration, data access, security. |
javascript-bundle || Shrink what a browser has to download: tree shaking, splitting, lazy loading. |
json-schema || Describe and validate JSON documents with a schema. |
kubernetes-debug | k8s | Find out why a pod does not start, crashes or cannot be reached. |
latex-paper || Typeset a scientific paper with LaTeX, figures and a bibliography. |
load-testing | performance | Measure how a service behaves under many concurrent requests. |
localization | i18n | Extract texts, translate them and check plural forms and layout. |
log-analysis | ops | Search logs for the cause of an error and count how often it occurs. |
meeting-notes || Turn a transcript into decisions, open questions and tasks with owners. |
oauth2-login | security | Add sign-in with OAuth 2.0 and OpenID Connect to a web application. |
password-policy | security | Review how secrets and passwords are stored and rotated. |
pdf-forms | office | Fill in the fields of PDF forms. |
pdf-tables | office | Extract tables and text from PDF files, scanned pages too, into CSV. |
pptx-slides | office presentation | Make PowerPoint slides from an outline with a given template. |
python-packaging || Publish Python packages: pyproject, wheels, versions. |
python-testing | quality | Write unit tests for Python with pytest: fixtures, parametrization, mocks. |
react-components | ui | Build accessible React components with hooks and stories. |
regex-helper || Write and explain regular expressions. |
release-notes | release | Write what users should know about a version. |
rust-unsafe || Audit unsafe blocks in Rust and state the invariants they rely on. |
security-audit | security | Search a code base for vulnerabilities: injection, broken access control, leaked secrets. |
seo-check || Check titles, descriptions, links and speed of web pages for search engines. |
sql-tuning | sql performance | Read query plans and add the indexes that are missing. |
terraform-modules | ops | Describe cloud infrastructure as reusable modules. |
travel-booking || Compare flights and hotels and assemble an itinerary. |
typescript-types || Model data with precise TypeScript types: unions, generics, narrowing. |
video-subtitles || Create subtitles for films and shift them in time. |
web-scraping || Collect data from web pages politely: rate limits, robots, retries. |
дизайн-логотипа || Придумать логотип и фирменный стиль для компании. |
größen-umrechnung || Rechnet Maße und Währungen um, z. B. Zoll in Zentimeter und Straßenkilometer in Meilen. |
数据分析 || 读取表格数据，做统计分析并生成可视化报告。 |
文書翻訳 || 日本語の文書を英語に翻訳し、用語を統一する。 |
회의록 || 회의 녹취를 요약하고 할 일을 정리한다. |
`

func inventedSkills() []*skills.Skill {
	var all []*skills.Skill
	for line := range strings.Lines(invented) {
		fields := strings.Split(strings.TrimSpace(line), "|")
		if len(fields) != 4 {
			continue
		}
		for i := range fields {
			fields[i] = strings.TrimSpace(fields[i])
		}
		path := fields[0]
		all = append(all, &skills.Skill{Path: path, Frontmatter: skills.Frontmatter{
			Name: path[strings.LastIndexByte(path, '/')+1:], Tags: strings.Fields(fields[1]),
			Description: fields[2], WhenToUse: fields[3],
		}})
	}
	return all
}

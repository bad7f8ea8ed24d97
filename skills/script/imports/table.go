package imports

import (
	"strings"
	"sync"
)

// A language is the naming of packages in a language.
type language struct {
	// known maps modules to their packages: the first one is suggested, the others are accepted if the skill
	// names them.
	known func() map[string][]string
}

// python and node are tables of names that were reviewed one by one; doubtful ones are left out. A module
// with the name of its package is listed too, since only known names are suggested.
var (
	python = language{known: table(`
PIL=Pillow yaml=PyYAML docx=python-docx pptx=python-pptx fitz=PyMuPDF pymupdf=PyMuPDF
cv2=opencv-python,opencv-python-headless,opencv-contrib-python,opencv-contrib-python-headless
bs4=beautifulsoup4 dotenv=python-dotenv dateutil=python-dateutil sklearn=scikit-learn skimage=scikit-image
nacl=PyNaCl jwt=PyJWT serial=pyserial usb=pyusb zmq=pyzmq Crypto=pycryptodome Cryptodome=pycryptodomex
OpenSSL=pyOpenSSL git=GitPython github=PyGithub gitlab=python-gitlab magic=python-magic
slugify=python-slugify
psycopg2=psycopg2-binary,psycopg2 MySQLdb=mysqlclient markdown=Markdown jinja2=Jinja2 flask=Flask
sqlalchemy=SQLAlchemy tweepy=tweepy telegram=python-telegram-bot discord=discord.py slack_sdk=slack-sdk
Bio=biopython rdkit=rdkit umap=umap-learn attr=attrs attrs=attrs websocket=websocket-client
frontmatter=python-frontmatter multipart=python-multipart jose=python-jose ldap=python-ldap
youtube_transcript_api=youtube-transcript-api yt_dlp=yt-dlp faster_whisper=faster-whisper edge_tts=edge-tts
sentence_transformers=sentence-transformers huggingface_hub=huggingface-hub prompt_toolkit=prompt-toolkit
pydantic_settings=pydantic-settings typing_extensions=typing-extensions pkg_resources=setuptools
readability=readability-lxml googleapiclient=google-api-python-client
google_auth_oauthlib=google-auth-oauthlib
pdfminer=pdfminer.six pdf2image=pdf2image pdfplumber=pdfplumber pypdf=pypdf PyPDF2=PyPDF2
pypdfium2=pypdfium2
reportlab=reportlab openpyxl=openpyxl xlsxwriter=XlsxWriter xlrd=xlrd lxml=lxml defusedxml=defusedxml
pytesseract=pytesseract weasyprint=weasyprint docxtpl=docxtpl ebooklib=EbookLib markdownify=markdownify
markitdown=markitdown html2text=html2text tabulate=tabulate
numpy=numpy pandas=pandas scipy=scipy matplotlib=matplotlib seaborn=seaborn plotly=plotly networkx=networkx
statsmodels=statsmodels polars=polars pyarrow=pyarrow duckdb=duckdb sympy=sympy torch=torch
torchvision=torchvision transformers=transformers tensorflow=tensorflow xgboost=xgboost lightgbm=lightgbm
imageio=imageio graphviz=graphviz altair=altair tiktoken=tiktoken
requests=requests httpx=httpx aiohttp=aiohttp urllib3=urllib3 certifi=certifi websockets=websockets
anthropic=anthropic openai=openai mcp=mcp fastmcp=fastmcp fastapi=fastapi uvicorn=uvicorn pydantic=pydantic
django=Django starlette=starlette boto3=boto3 botocore=botocore paramiko=paramiko redis=redis
pymongo=pymongo
psycopg=psycopg asyncpg=asyncpg cryptography=cryptography feedparser=feedparser arxiv=arxiv
playwright=playwright selenium=selenium trafilatura=trafilatura
rich=rich click=click typer=typer tqdm=tqdm colorama=colorama loguru=loguru tenacity=tenacity psutil=psutil
toml=toml tomli=tomli tomli_w=tomli-w tomlkit=tomlkit jsonschema=jsonschema orjson=orjson chardet=chardet
regex=regex packaging=packaging pytest=pytest pytz=pytz tzlocal=tzlocal nltk=nltk spacy=spacy
tree_sitter=tree-sitter mutagen=mutagen pydub=pydub moviepy=moviepy librosa=librosa soundfile=soundfile
qrcode=qrcode streamlit=streamlit gradio=gradio jieba=jieba setuptools=setuptools six=six`)}
	node = language{known: table(`
docx=docx pptxgenjs=pptxgenjs yaml=yaml js-yaml=js-yaml marked=marked sharp=sharp playwright=playwright
puppeteer=puppeteer puppeteer-core=puppeteer-core express=express axios=axios chalk=chalk
commander=commander
zod=zod typescript=typescript react=react react-dom=react-dom react-icons=react-icons
@modelcontextprotocol/sdk=@modelcontextprotocol/sdk @anthropic-ai/sdk=@anthropic-ai/sdk openai=openai
lodash=lodash glob=glob fs-extra=fs-extra dotenv=dotenv cheerio=cheerio jsdom=jsdom minimist=minimist
yargs=yargs
node-fetch=node-fetch ws=ws uuid=uuid semver=semver pdf-lib=pdf-lib exceljs=exceljs prettier=prettier
eslint=eslint esbuild=esbuild tsx=tsx ajv=ajv gray-matter=gray-matter handlebars=handlebars ejs=ejs
mustache=mustache inquirer=inquirer ora=ora execa=execa dayjs=dayjs date-fns=date-fns moment=moment
luxon=luxon
undici=undici picocolors=picocolors fast-glob=fast-glob jszip=jszip archiver=archiver mammoth=mammoth
turndown=turndown vite=vite vitest=vitest jest=jest`)}
)

// table returns a function that parses MODULE=PACKAGE,OTHER on its first call.
func table(text string) func() map[string][]string {
	return sync.OnceValue(func() map[string][]string {
		known := map[string][]string{}
		for word := range strings.FieldsSeq(text) {
			module, packages, _ := strings.Cut(word, "=")
			known[module] = strings.Split(packages, ",")
		}
		return known
	})
}
